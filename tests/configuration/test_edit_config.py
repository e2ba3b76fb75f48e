import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.configuration import load_settings
from callboard.configuration.edit_config import (
    FactEvidence,
    add_server,
    list_replaced,
    merge,
    set_json_values,
    set_toml_values,
    write_profile,
)
from callboard.errors import CallerError
from callboard.profiles import Examination, resolve
from callboard.profiles.remarks import select_facts

OURS = {
    "model": "mine",
    "web_search": "disabled",
    "providers": {"callboard": {"name": "Callboard", "url": "http://127.0.0.1"}},
    "features": {"plugins": False},
}
PROVIDER = '[providers.callboard]\nname = "Callboard"\nurl = "http://127.0.0.1"\n'
TOP = 'model = "mine"\nweb_search = "disabled"\n'


@table(
    ("before", "after"),
    [
        ("", f"{TOP}\n{PROVIDER}\n[features]\nplugins = false\n"),
        (
            '# mine\nmodel = "theirs"\n\n[features]\nshell = true # so\n',
            f"# mine\n{TOP}\n[features]\nshell = true # so\nplugins = false\n\n{PROVIDER}",
        ),
        ("[other]\na = 1", f"{TOP}\n[other]\na = 1\n\n{PROVIDER}\n[features]\nplugins = false\n"),
        (
            "features.plugins = true\n[other]\na = 1\n",
            f"features.plugins = false\n{TOP}\n[other]\na = 1\n\n{PROVIDER}",
        ),
        (
            "list = [\n 1,\n]\n[features]\nplugins = false\n",
            f"list = [\n 1,\n]\n{TOP}\n[features]\nplugins = false\n\n{PROVIDER}",
        ),
        (
            '[other]\ntext = """\n[features]\nmodel = 1\n"""\n',
            f'{TOP}\n[other]\ntext = """\n[features]\nmodel = 1\n"""\n\n{PROVIDER}\n[features]\nplugins = false\n',
        ),
        ("features = {plugins = true} # so\n", f"features = {{plugins = false}} # so\n{TOP}\n{PROVIDER}"),
        ("model = [\n 1,\n]\n", f"{TOP}\n{PROVIDER}\n[features]\nplugins = false\n"),
    ],
)
def test_toml(before, after):
    assert set_toml_values(before, OURS) == after
    assert set_toml_values(after, OURS) == after


@table(
    ("before", "said"),
    [
        ("[[features]]\nplugins = true\n", "written in a way"),
        ("providers = {}\n", "written in a way"),
        ("model = \n", "not TOML"),
    ],
)
def test_toml_that_cannot_be_changed(before, said):
    with pytest.raises(CallerError, match=said):
        set_toml_values(before, OURS)


values = st.one_of(st.booleans(), st.integers(-9, 9), st.text("a\"\\'#=[]\né\t", max_size=5))
keys = st.text("abc", min_size=1, max_size=2)
settings = st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, values, min_size=1, max_size=3)), max_size=4)


@given(settings, settings)
def test_what_was_there_stays(there, ours):
    """Or the text is refused."""
    text = set_toml_values("", there)
    assert tomllib.loads(text) == there
    try:
        after = set_toml_values(text, ours)
    except CallerError:
        return
    assert tomllib.loads(after) == merge(tomllib.loads(text), ours)


@table(
    ("before", "after"),
    [
        ("", {"env": {"A": "1"}}),
        ('{"env": {"B": "2", "A": "0"}, "é": [1]}', {"env": {"B": "2", "A": "1"}, "é": [1]}),
        ('{"env": "none"}', {"env": {"A": "1"}}),
    ],
)
def test_json(before, after):
    text = set_json_values(before, {"env": {"A": "1"}})
    assert json.loads(text) == after
    assert set_json_values(text, {"env": {"A": "1"}}) == text


@table("before", ['{"a": 1, // so\n}', "[]", "{", "[" * 100_000])
def test_json_that_cannot_be_changed(before):
    with pytest.raises(CallerError, match="not"):
        set_json_values(before, {})


def test_what_would_be_lost():
    there = {"env": {"A": "0", "B": "1"}, "model": "x"}
    assert list_replaced(there, {"env": {"A": "1", "B": "1", "C": "2"}, "model": "x"}) == [("env.A", "0", "1")]


EXAMINED = Examination(url="http://127.0.0.1:8080/v1", version="llama.cpp b1", date="2026-11-22")


def facts_of(path, model):
    return load_settings({}, path.parent, {"XDG_CONFIG_HOME": str(path.parent.parent)}).profile(model)


def values_of(path, model):
    return select_facts(facts_of(path, model))


def write(path, model, asked=(), examined=EXAMINED, **facts):
    with_evidence = {fact: FactEvidence(value, f"{fact} was\nseen") for fact, value in facts.items()}
    return write_profile(path, model, with_evidence, examined=examined, questions=asked)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "callboard" / "callboard.toml"


def test_facts_are_added_with_their_evidence_to_what_is_there(path):
    path.parent.mkdir()
    path.write_text("# mine\nmodel = 'x'  # this one")
    write(path, "Qwen/Qwen3.6-27B-Q4_K_M", merge_system_messages=True, efforts=["low"])
    text = path.read_text()
    assert text.startswith(
        "# mine\nmodel = 'x'  # this one\n\n[profiles.\"qwen3.6-27b\"]\nmerge_system_messages = true\n"
        'merge_system_messages_evidence = "doctor: merge_system_messages was seen"\nefforts = ["low"]\n'
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert values_of(path, "qwen3.6-27b") == {"merge_system_messages": True, "efforts": ["low"]}
    resolution = resolve("qwen3.6-27b", facts_of(path, "qwen3.6-27b"))
    assert resolution.examined == EXAMINED
    assert resolution.known_from("efforts") == "user: doctor: efforts was seen"


def test_facts_that_were_found_out_before_are_replaced_and_the_persons_own_stay(path):
    write(path, "m", merge_system_messages=True, context_tokens=4096)
    path.write_text(path.read_text() + "temperature = 0.5  # cool\n\n[profiles.other]\ncontext_tokens = 1\n")
    other = Examination(url="u", version="llama.cpp b2")
    assert write(path, "m", examined=other, context_tokens=8192, temperature=0.0) == ("temperature",)
    assert values_of(path, "m") == {"merge_system_messages": True, "context_tokens": 8192, "temperature": 0.5}
    assert facts_of(path, "m")["examined"] == {"url": "u", "version": "llama.cpp b2"}
    assert facts_of(path, "other") == {"context_tokens": 1}
    assert "temperature = 0.5  # cool\n" in path.read_text()


def test_what_was_asked_for_again_and_not_found_again_goes(path):
    write(path, "m", merge_system_messages=True, supports_strict=False)
    path.write_text(path.read_text() + "reports_usage = false\n")
    write(path, "m", asked={"merge_system_messages", "reports_usage"}, context_tokens=1)
    assert values_of(path, "m") == {"supports_strict": False, "reports_usage": False, "context_tokens": 1}


@pytest.mark.parametrize(
    "text",
    [
        "profiles = { m = { context_tokens = 1 } }\n",
        "profiles.m.context_tokens = 1\n[coding]\n",
        "[profiles.n]\nmode = ''\n[coding]\n[profiles.m]\ncontext_tokens = 1\n",
    ],
)
def test_a_table_is_added_to_however_it_is_written(path, text):
    path.parent.mkdir()
    path.write_text(text)
    write(path, "m", supports_streaming=False)
    assert values_of(path, "m") == {"context_tokens": 1, "supports_streaming": False}


def test_facts_of_a_model_without_a_name_are_refused(path):
    """The empty pattern would match every model."""
    with pytest.raises(CallerError, match="no name"):
        write(path, ":", supports_streaming=False)
    assert not path.exists()


@pytest.mark.parametrize("text", ["profiles = 3\n", "profiles.m = 3\n"])
def test_what_is_no_table_is_left_as_it_is(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(CallerError, match="not a table"):
        write(path, "m", supports_streaming=False)
    assert path.read_text() == text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_keeps_its_line_ends(tmp_path, end):
    path = tmp_path / "callboard.toml"
    before = '# mine\nmodel = "m"\ninstructions = """\nBe brief.\n"""\n\n[profiles.other]\nmode = "native"\n'
    path.write_bytes(before.replace("\n", end).encode())
    write_profile(path, "m", {"mode": FactEvidence("native", "it calls")}, author="eval", examined=Examination(url="u"))
    add_server(path, "files", {"command": ["server"]})
    text = path.read_bytes().decode()
    assert text.startswith(before.replace("\n", end))
    assert text.count(end) == text.count("\n") > before.count("\n")
    assert tomllib.loads(text)["profiles"]["m"]["mode"] == "native"
    assert set_json_values(f'{{"a": 1}}{end}', {"b": 2}) == f'{{{end}  "a": 1,{end}  "b": 2{end}}}{end}'


def test_lines_that_end_in_two_ways_stay_as_they_are():
    assert set_toml_values("a = 1\r\nb = 2\n", {"c": 3}) == "a = 1\r\nb = 2\nc = 3\n"
