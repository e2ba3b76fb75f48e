from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import DescriptorError
from callboard.tools import InvokerDescriptor, read_ensemble, read_invoker
from callboard.tools.descriptors import dotted_path

# Seed 000, verbatim.
READ_FILE = """
# data/ensembles/io/invokers/read_file.toml
[invoker]
name = "read_file"
enabled = true
description = "Reads contents of a file"

[arguments]
type = "object"
required = ["path"]

[arguments.properties.path]
type = "string"
description = "Absolute path to file"

[arguments.properties.encoding]
type = "string"
description = "File encoding"
default = "utf-8"
"""
IO = """
# data/ensembles/io.toml
[ensemble]
name = "io"
enabled = true

[defaults]
timeout = 30
max_retries = 3

[[invokers]]
source = "io/invokers/read_file.toml"

[[invokers]]
source = "io/invokers/write_file.toml"
"""
# Seed 004, verbatim.
INLINE = """
# data/ensembles/io.toml
[ensemble]
name = "io"
enabled = true

[[invokers]]
name = "read_file"
enabled = true
description = "Read contents of a file"

[[invokers]]
name = "write_file"
enabled = true
description = "Write content to a file"
"""


def test_the_seeds_invoker():
    read = read_invoker(tomllib.loads(READ_FILE))
    assert (read.name, read.enabled, read.description) == ("read_file", True, "Reads contents of a file")
    assert read.arguments == {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "description": "Absolute path to file"},
            "encoding": {"type": "string", "description": "File encoding", "default": "utf-8"},
        },
    }


def test_the_seeds_ensemble():
    asked = []

    def source(named, place):
        asked.append((named, place))
        return InvokerDescriptor(name=named.rpartition("/")[2].removesuffix(".toml"))

    read = read_ensemble(tomllib.loads(IO), source=source)
    assert (read.name, read.enabled, read.configuration) == ("io", True, {"timeout": 30, "max_retries": 3})
    assert [each.name for each in read.invokers] == ["read_file", "write_file"]
    assert asked == [
        ("io/invokers/read_file.toml", "invokers[0].source"),
        ("io/invokers/write_file.toml", "invokers[1].source"),
    ]


def test_the_seeds_inline_invokers():
    read = read_ensemble(tomllib.loads(INLINE))
    assert [(each.name, each.enabled, each.description) for each in read.invokers] == [
        ("read_file", True, "Read contents of a file"),
        ("write_file", True, "Write content to a file"),
    ]


def test_both_forms_say_the_same():
    keys = {"name": "x", "timeout": 1, "approval": True}
    beside = {"arguments": {"type": "object"}, "cli": {"-t": "text"}, "subjects": {"file": "path", "line": "command"}}
    assert read_invoker({"invoker": keys, **beside}) == read_invoker({**keys, **beside})
    invokers = [{"name": "x"}]
    file = read_ensemble({"ensemble": {"name": "e", "root": "r"}, "invokers": invokers})
    flat = read_ensemble({"name": "e", "root": "r", "invokers": invokers})
    assert (file.name, file.options, file.invokers) == (flat.name, flat.options, flat.invokers)
    assert (file.places, flat.places) == ({"root": "ensemble.root"}, {"root": "root"})


@table(
    ("toml", "told"),
    [
        ("[invoker]\nnam = 'x'", "invoker: no name; write name in [invoker]"),
        ("[invoker]\nname = 'x'\ntimout = 3", "invoker.timout: unknown key; did you mean 'timeout'"),
        ("[invoker]\nname = 'x'\n[argument]", "argument: unknown key; did you mean 'arguments'?"),
        ("[invoker]\nname = 'x'\n[invoker.arguments]", "invoker.arguments: unknown key; [arguments] belongs beside"),
        ("[invoker]\nname = 'x'\npath = 'y'", "invoker.path: unknown key"),
        ("", "no name; write name in [invoker]"),
        ("[invoker]\nname = ''", "invoker.name: not a text in quotation marks of length >= 1"),
        ("[invoker]\nname = 3", "invoker.name: not a text in quotation marks"),
        ("[invoker]\nname = 'x'\ntimeout = 0", "invoker.timeout: not a number above 0"),
        ("[invoker]\nname = 'x'\nenabled = 'perhaps'", "invoker.enabled: not true or false"),
        ("[invoker]\nname = 'x'\n[cli]\n-t = 3", "cli.-t: not a text in quotation marks"),
        ("[invoker]\nname = 'x'\n[subjects]\nfile = 'files'", "subjects.file: 'files' is not allowed; there are path"),
        ("[invoker]\nname = 'x'\nsubjects = {}", "invoker.subjects: unknown key; [subjects] belongs beside [invoker]"),
        ("invoker = 3", "invoker: not a table"),
        ("name = 'x'\narguments = 3", "arguments: not a table"),
    ],
)
def test_an_invoker_that_is_described_wrongly(toml, told):
    with pytest.raises(DescriptorError) as caught:
        read_invoker(tomllib.loads(toml))
    assert str(caught.value).startswith(told)


@table(
    ("toml", "told"),
    [
        ("[ensemble]\nenabled = true", "ensemble: no name; write name in [ensemble]"),
        ("[ensembles]\nname = 'x'", "no name; write name in [ensemble]"),
        ("[ensemble]\nname = 'x'\n[default]", "default: unknown key; did you mean 'defaults'?"),
        ("[ensemble]\nname = 'x'\n[defaults]\nretries = 3", "defaults.retries: unknown key; did you mean 'max_ret"),
        ("[ensemble]\nname = 'x'\n[defaults]\ntimeout = -1", "defaults.timeout: not a number above 0"),
        ("[ensemble]\nname = 'x'\n[defaults]\nmax_retries = 1.5", "defaults.max_retries: not a whole number"),
        ("[ensemble]\nname = 'x'\n[ensemble.defaults]", "ensemble.defaults: unknown key; [defaults] belongs beside"),
        ("[ensemble]\nname = 'x'\n[invokers]", "invokers: not a list of tables; write [[invokers]]"),
        ("[ensemble]\nname = 'x'\n[[invokers]]", "invokers[0]: no name; write name in [invoker]"),
        ("name = 'x'\ninvokers = [3]", "invokers[0]: not a table"),
        (
            "name = 'x'\ninvokers = [{name = 'y'}, {name = 'z', nam = 'z'}]",
            "invokers[1].nam: unknown key; did you mean 'name'?",
        ),
        ("name = 'x'\ninvokers = [{source = 'y'}]", "invokers[0].source: no such source; only a file can have one"),
        (
            "name = 'x'\ninvokers = [{source = 'y', name = 'z'}]",
            "invokers[0].name: unknown key; did you mean 'enabled'?",
        ),
        (
            "name = 'x'\ninvokers = [{name = 'y'}, {name = 'y'}]",
            "invokers[1]: two invokers are named 'y'; the other is at invokers[0]",
        ),
    ],
)
def test_an_ensemble_that_is_described_wrongly(toml, told):
    with pytest.raises(DescriptorError) as caught:
        read_ensemble(tomllib.loads(toml))
    assert str(caught.value).startswith(told)


def test_a_name_may_be_taken_by_one_that_is_not_enabled():
    invokers = [{"name": "y", "enabled": False}, {"name": "y"}]
    assert len(read_ensemble({"name": "x", "invokers": invokers}).invokers) == 2


@table(("here", "there"), [(True, True), (False, True), (True, False)])
def test_a_source_is_enabled_in_both_places(here, there):
    invokers = [{"source": "y.toml", "enabled": here}]
    read = read_ensemble(
        {"name": "x", "invokers": invokers}, source=lambda *_: InvokerDescriptor(name="y", enabled=there)
    )
    assert read.invokers[0].enabled is (here and there)


@table(
    ("keys", "text"),
    [
        ((), ""),
        (("invokers", 0, "timeout"), "invokers[0].timeout"),
        (("profiles", "qwen2.5", "mode"), 'profiles."qwen2.5".mode'),
        (("",), '""'),
    ],
)
def test_keys_as_text(keys, text):
    assert dotted_path(keys) == text


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["ensemble", "name", "enabled", "module", "defaults", "timeout", "invokers", "source", "cli"])


@given(st.dictionaries(keys | st.text(), json | st.dictionaries(keys, json) | st.lists(st.dictionaries(keys, json))))
def test_whatever_is_given_is_read_or_refused(values):
    for read in (read_invoker, read_ensemble):
        try:
            read(values)
        except DescriptorError as error:
            assert error.message  # noqa: PT017 - either is right
