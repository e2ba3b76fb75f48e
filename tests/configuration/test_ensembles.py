import asyncio
import sys
import tomllib
from types import ModuleType

import pytest
from tests.tables import table

from callboard import Ensemble
from callboard.configuration import (
    create_ensemble_from_configuration,
    disconnect_ensembles,
    load_configuration,
    load_directory,
    prepare_ensembles,
)
from callboard.errors import CallboardError, CallerError, DescriptorError, ToolExecutionFailure

# Seed 000, verbatim; write_file as its list of tools names it.
READ_FILE = """
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
WRITE_FILE = """
[invoker]
name = "write_file"
enabled = true
"""
IO = """
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


class Connection:
    """One that says what it did, and fails where it is told to."""

    did: list[str]
    fails: dict[str, BaseException]

    def __init__(self, name):
        self.name = name

    async def _do(self, what):
        act = f"{what} {self.name}"
        self.did.append(act)
        if act in self.fails:
            raise self.fails[act]

    async def connect(self):
        await self._do("connect")

    async def disconnect(self):
        await self._do("disconnect")


@pytest.fixture
def wires(monkeypatch):
    """A module whose ensembles connect; `did` says what was done, `fails` what is to fail."""
    module = ModuleType("wires")
    module.did, module.fails = [], {}

    def connection(to: str, timeout: int = 3, headers: dict[str, str] | None = None):
        made = Connection(to)
        made.did, made.fails, made.timeout, made.headers = module.did, module.fails, timeout, headers
        return made

    def ping(text: str = "ping") -> str:
        """Ping."""
        return text

    ping.__module__ = "wires"
    module.connection, module.ping = connection, ping
    monkeypatch.setitem(sys.modules, "wires", module)
    return module


def three(**keys):
    return {
        "ensembles": [
            {"name": name, "module": "wires", "to": name, "invokers": [{"name": "ping"}], **keys} for name in "abc"
        ]
    }


def test_the_seeds_directory(write, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("data/ensembles/io/invokers/read_file.toml", READ_FILE)
    write("data/ensembles/io/invokers/write_file.toml", WRITE_FILE)
    write("data/ensembles/io.toml", IO)
    configuration = load_directory("data/ensembles")
    (written,) = call(configuration, "write_file", {"path": "x", "content": "hello"})
    assert written.text == "5 bytes were written to x"
    (read,) = call(configuration, "read_file", {"path": str(tmp_path / "x")})
    assert read.text == "hello"

    (io,) = asyncio.run(prepare_ensembles(configuration))
    assert io.configuration == {"timeout": 30, "max_retries": 3}
    read_file = io.access_invoker("read_file")
    assert (read_file.description, read_file.arguments_schema["required"]) == ("Reads contents of a file", ["path"])
    # Without [arguments] it is the signature.
    assert io.access_invoker("write_file").arguments_schema["required"] == ["path", "content"]
    asyncio.run(disconnect_ensembles([io]))


def test_the_seeds_inline_ensemble(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configuration = {"ensembles": [tomllib.loads(INLINE)]}
    assert call(configuration, "write_file", {"path": "x", "content": "hello"})[0].error is None
    assert call(configuration, "read_file", {"path": "x"})[0].text == "hello"
    (io,) = asyncio.run(prepare_ensembles(configuration))
    assert io.access_invoker("read_file").description == "Read contents of a file"
    asyncio.run(disconnect_ensembles([io]))


async def test_ensembles_are_connected_in_their_order_and_disconnected_in_the_other(wires):
    ensembles = await prepare_ensembles(three())
    assert [each.name for each in ensembles] == ["a", "b", "c"]
    assert wires.did == ["connect a", "connect b", "connect c"]
    wires.did.clear()
    await disconnect_ensembles(ensembles)
    assert wires.did == ["disconnect c", "disconnect b", "disconnect a"]


def test_what_is_not_enabled_is_left_out(wires):
    configuration = three()
    configuration["ensembles"][1] = {"name": "b", "enabled": False, "to": "env:NOT_SET", "invokers": [{"nonsense": 1}]}
    configuration["ensembles"][2]["invokers"] += [{"name": "no_such_function", "enabled": False}]
    ensembles = asyncio.run(prepare_ensembles(configuration))
    assert [(each.name, [*each.invokers]) for each in ensembles] == [("a", ["ping"]), ("c", ["ping"])]
    assert wires.did == ["connect a", "connect c"]


def test_one_that_cannot_be_connected_disconnects_the_others(wires):
    wires.fails.update({"connect c": ConnectionRefusedError("nobody there"), "disconnect b": OSError("stuck")})
    with pytest.raises(ToolExecutionFailure) as caught:
        asyncio.run(prepare_ensembles(three()))
    assert str(caught.value) == "ensemble c: cannot connect: nobody there"
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert caught.value.__notes__ == ["ensemble b: cannot disconnect: stuck"]
    assert wires.did == ["connect a", "connect b", "connect c", "disconnect b", "disconnect a"]


def test_cancelled_while_connecting(wires):
    wires.fails.update({"connect b": asyncio.CancelledError()})
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(prepare_ensembles(three()))
    assert wires.did == ["connect a", "connect b", "disconnect a"]


async def test_one_failing_disconnect_does_not_skip_the_rest(wires):
    ensembles = await prepare_ensembles(three())
    wires.did.clear()
    wires.fails.update({"disconnect c": OSError("stuck"), "disconnect a": TimeoutError()})
    with pytest.raises(ToolExecutionFailure) as caught:
        await disconnect_ensembles(ensembles)
    assert str(caught.value) == "ensemble c: cannot disconnect: stuck"
    assert caught.value.__notes__ == ["ensemble a: cannot disconnect: TimeoutError"]
    assert wires.did == ["disconnect c", "disconnect b", "disconnect a"]


async def test_cancelled_while_disconnecting(wires):
    ensembles = await prepare_ensembles(three())
    wires.did.clear()
    wires.fails.update({"disconnect c": OSError("stuck"), "disconnect b": asyncio.CancelledError()})
    with pytest.raises(asyncio.CancelledError) as caught:
        await disconnect_ensembles(ensembles)
    assert caught.value.__notes__ == ["ensemble c: cannot disconnect: stuck"]
    assert wires.did == ["disconnect c", "disconnect b", "disconnect a"]


def test_nothing_is_connected_where_something_is_described_wrongly(wires):
    configuration = three()
    configuration["ensembles"][2]["invokers"] = [{"name": "pong"}]
    with pytest.raises(DescriptorError) as caught:
        asyncio.run(prepare_ensembles(configuration))
    assert str(caught.value) == "ensembles[2].invokers[0]: wires has no 'pong'; did you mean 'ping'?"
    assert wires.did == []


@table(
    ("configuration", "told"),
    [
        *[
            (
                each,
                f"a {type(each).__name__} is not a configuration; give {{'ensembles': [...]}}, or the result of load_directory",
            )
            for each in (None, [], "io", 5, [{"name": "io"}])
        ],
        ({"mcp": None}, "mcp: not a table"),
        ({"mcp": "io"}, "mcp: not a table"),
        ({}, "ensembles: not a list of ensembles"),
        ({"ensembles": {}}, "ensembles: not a list of ensembles"),
        ({"ensembles": [3]}, "ensembles[0]: not a table"),
        ({"ensembles": [{"ensemble": 3}]}, "ensembles[0].ensemble: not a table"),
        ({"ensembles": [{"nam": "io"}]}, "ensembles[0]: no name; write name in [ensemble]"),
        ({"ensembles": [{"name": "a"}, {"name": "a"}]}, "ensembles[1]: two ensembles are named 'a'; the other is at "),
        ({"ensembles": [{"name": "a", "rot": 1}]}, "ensembles[0].rot: unknown key; there are name, enabled, module"),
        (
            {"ensembles": [{"name": "a", "defaults": {"timeout": "env:NOT_SET"}}]},
            "ensembles[0].defaults.timeout: the environment has no 'NOT_SET'; set NOT_SET",
        ),
    ],
)
def test_a_configuration_that_is_none(configuration, told):
    with pytest.raises(DescriptorError) as caught:
        asyncio.run(prepare_ensembles(configuration))
    assert str(caught.value).startswith(told)


def test_an_ensemble_without_a_connection():
    (empty,) = asyncio.run(prepare_ensembles({"ensembles": [{"name": "empty"}]}, warn=lambda _: None))
    assert isinstance(empty, Ensemble)
    assert (empty.connection, dict(empty.invokers)) == (None, {})


@table("invokers", [[], [{"name": "read_file", "enabled": False}]])
def test_an_ensemble_without_tools_is_told(invokers):
    notices = []
    asyncio.run(prepare_ensembles({"ensembles": [{"name": "io", "invokers": invokers}]}, warn=notices.append))
    assert notices == ["io has no tools: none is enabled in [[invokers]]"]


@table("ensembles", [None, 5, [None], [{"name": "io"}], "io"])
def test_what_is_no_ensemble_is_not_disconnected(ensembles):
    with pytest.raises(CallerError, match=r"^ensembles: .* give the result of prepare_ensembles$"):
        asyncio.run(disconnect_ensembles(ensembles))


@table("where", [None, 5, b"io"])
def test_a_directory_is_a_path(where):
    with pytest.raises(DescriptorError, match=r"is not the path of a directory$"):
        load_directory(where)


# Directories.

WIRED = """\
[ensemble]
name = "wired"
module = "wires"
to = "env:WIRED_TO"
timeout = "env:WIRED_TIMEOUT"
headers = { authorization = "env:WIRED_KEY", plain = "env" }

[defaults]
timeout = "env:WIRED_TIMEOUT"

[[invokers]]
name = "ping"
description = "env:WIRED_TO"

[invokers.arguments.properties.text]
type = "string"
default = "env:WIRED_KEY"
description = "env:NOT_SET"
"""


def test_values_from_the_environment(write, tmp_path, wires):
    write("wired.toml", WIRED)
    environ = {"WIRED_TO": "there", "WIRED_TIMEOUT": "7", "WIRED_KEY": "secret"}
    (wired,) = asyncio.run(prepare_ensembles(load_directory(tmp_path, environ)))
    assert wires.did == ["connect there"]
    assert wired.connection.timeout == 7
    assert wired.connection.headers == {"authorization": "secret", "plain": "env"}
    assert wired.configuration["timeout"] == 7.0
    # What models read is as it is written.
    ping = wired.access_invoker("ping")
    assert ping.description == "env:WIRED_TO"
    assert ping.arguments_schema["properties"]["text"] == {
        "type": "string",
        "default": "env:WIRED_KEY",
        "description": "env:NOT_SET",
    }


def test_a_value_that_the_environment_does_not_have(write, tmp_path):
    write("wired.toml", WIRED)
    with pytest.raises(DescriptorError) as caught:
        load_directory(tmp_path, {"WIRED_TO": "there", "WIRED_TIMEOUT": "7"})
    assert str(caught.value) == (
        f"{tmp_path}/wired.toml:6: ensemble.headers.authorization: the environment has no 'WIRED_KEY'; set WIRED_KEY"
    )


def test_files_are_read_in_the_order_of_their_names(write, tmp_path):
    for name in ("b", "a", "c"):
        write(f"{name}.toml", f"[ensemble]\nname = '{name}'")
    write(".hidden.toml", "no TOML")
    write("notes.txt", "no TOML")
    write("below/d.toml", "no TOML")
    assert [each.name for each in load_directory(tmp_path)["ensembles"]] == ["a", "b", "c"]


def test_directories_and_built_in_ensembles_together(write, tmp_path, monkeypatch):
    write("here/a.toml", "[ensemble]\nname = 'a'")
    write("io/own.toml", "[ensemble]\nname = 'own'")
    monkeypatch.chdir(tmp_path)
    names = [each.name for each in load_configuration(["here", "io", "./io"])["ensembles"]]
    assert names == ["a", "io", "own"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"x.toml": "a = "}, "x.toml: not TOML: Invalid value (at end of document)"),
        ({"x.toml": "\n\na = ]"}, "x.toml:3: not TOML: Invalid value"),
        ({"x.toml": "[ensemble]\nenabled = true"}, "x.toml:1: ensemble: no name; write name in [ensemble]"),
        ({"x.toml": "[ensemble]\nname = 'x'\n[invoker]"}, "x.toml:3: invoker: unknown key; did you mean 'invokers'?"),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n\n[[invokers]]\nname = 'y'\ntimout = 3"},
            "x.toml:6: invokers[0].timout: unknown key; did you mean 'timeout'",
        ),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n[[invokers]]\nsource = 'y.tml'"},
            "x.toml:4: invokers[0].source: no file 'y.tml' in ",
        ),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n[[invokers]]\nsource = '../y.toml'"},
            "x.toml:4: invokers[0].source: '../y.toml' leads out of ",
        ),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n[[invokers]]\nsource = 'a/../y.toml'", "y.toml": ""},
            "x.toml:4: invokers[0].source: 'a/../y.toml' leads out of ",
        ),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n[[invokers]]\nsource = '/etc/passwd'"},
            "x.toml:4: invokers[0].source: '/etc/passwd' leads out of ",
        ),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n[[invokers]]\nsource = 'link'"},
            "x.toml:4: invokers[0].source: 'link' leads out of ",
        ),
        (
            {"x.toml": "[ensemble]\nname = 'x'\n[[invokers]]\nsource = 'x/y'", "x/y": "[invoker]\nname = 'y'\nx = 1"},
            "x/y:3: invoker.x: unknown key; ",
        ),
        ({}, ": the directory has no ensemble; describe one in a file NAME.toml"),
    ],
)
def test_a_directory_that_is_described_wrongly(write, tmp_path, files, told):
    directory = tmp_path / "ensembles"
    directory.mkdir()
    (directory / "link").symlink_to("/etc/passwd")
    for name, text in files.items():
        write(f"ensembles/{name}", text)
    with pytest.raises(DescriptorError) as caught:
        load_directory(directory)
    assert str(caught.value).startswith(f"{directory}{told if told[0] == ':' else '/' + told}")


@pytest.mark.parametrize(
    ("invoker", "told"),
    [
        ("name = 'pong'", "x.toml:4: invokers[0]: wires has no 'pong'; did you mean 'ping'?"),
        ("name = 'ping'\ncallable = 'wires:pong'", "x.toml:4: invokers[0]: wires has no 'pong'; did you mean 'ping'?"),
        ("name = 'ping'\narguments.type = 'strin'", "x.toml:4: invokers[0]#/type: not a valid JSON Schema"),
        ("name = 'ping'\narguments.properties.txt = {}", "x.toml:4: invokers[0]: the function takes no argument 'txt'"),
    ],
)
@pytest.mark.usefixtures("wires")
def test_invokers_that_do_not_fit_their_functions(write, tmp_path, invoker, told):
    write("x.toml", f"ensemble = {{ name = 'x', module = 'wires', to = 'x' }}\n\n\n[[invokers]]\n{invoker}\n")
    with pytest.raises(CallboardError) as caught:
        asyncio.run(prepare_ensembles(load_directory(tmp_path)))
    assert str(caught.value).startswith(f"{tmp_path}/{told}")


def test_an_unknown_key_of_the_ensemble(write, tmp_path, wires):
    write("x.toml", "[ensemble]\nname = 'x'\nmodule = 'wires'\nto = 'x'\nheader = 'y'")
    with pytest.raises(DescriptorError) as caught:
        asyncio.run(prepare_ensembles(load_directory(tmp_path)))
    assert (
        str(caught.value) == f"{tmp_path}/x.toml:5: ensemble.header: unknown key; did you mean 'headers' or 'search'?"
    )
    assert wires.did == []


def test_two_files_of_one_name(write, tmp_path):
    for name in ("a", "b"):
        write(f"{name}.toml", "[ensemble]\nname = 'same'")
    with pytest.raises(DescriptorError) as caught:
        asyncio.run(prepare_ensembles(load_directory(tmp_path)))
    assert str(caught.value) == (
        f"{tmp_path}/b.toml: two ensembles are named 'same'; the other is at {tmp_path}/a.toml"
    )


def test_no_directory(tmp_path):
    with pytest.raises(DescriptorError) as caught:
        load_configuration([str(tmp_path / "nothing")])
    told = "no such directory; a directory, or a built-in ensemble: io, coding, coding_single"
    assert str(caught.value) == f"{tmp_path}/nothing: {told}"


CACHED = """
[ensemble]
name = "io"

[[invokers]]
name = "read_file"
cache = {ttl = "1h"}

[[invokers]]
name = "write_file"
"""


def test_results_that_answer_later_runs(tmp_path):
    (tmp_path / "io.toml").write_text(CACHED)
    (made,) = asyncio.run(prepare_ensembles(load_directory(tmp_path)))
    assert {name: each.cache for name, each in made.invokers.items()} == {
        "read_file": {"ttl": "1h"},
        "write_file": None,
    }
    (tmp_path / "io.toml").write_text(f'{CACHED}cache = {{ttl = "1h"}}\n')
    with pytest.raises(DescriptorError, match=r"io.toml:9: invokers\[1\]: write_file: it is not idempotent, so its"):
        asyncio.run(prepare_ensembles(load_directory(tmp_path)))


def test_one_ensemble_of_a_descriptor():
    described = {"name": "io", "invokers": []}
    ensemble = asyncio.run(create_ensemble_from_configuration(described))
    assert (ensemble.name, dict(ensemble.invokers)) == ("io", {})
    with pytest.raises(DescriptorError):
        asyncio.run(create_ensemble_from_configuration({"nme": "io"}))
