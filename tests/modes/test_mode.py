import tomllib
from importlib.resources import files

import pytest
from tests.tables import table

from callboard.core import InvocationEnded, ToolDeclaration
from callboard.dialects import parse
from callboard.errors import CallerError
from callboard.modes import MODES, get_plan, make_plan
from callboard.profiles import resolve


def test_a_mode_is_a_row():
    rows = [(mode.name, mode.declares, mode.dialect, mode.validated) for mode in MODES.values()]
    assert rows == [
        ("native", "wire", "", True),
        ("structured", "constraint", "action", True),
        ("validated", "prompt", "", True),
        ("parsed", "prompt", "json", False),
    ]


@table(
    ("model", "mode", "dialect", "watched"),
    [
        ("gpt-4o", "native", "json", None),
        ("llama-3-70b", "native", "llama3_json", "llama3_json, pythonic"),
        ("mistral-7b", "validated", "json", "json, mistral"),
        ("local-model", "validated", "json", "auto"),
        ("local:qwen2.5-coder-0.5b", "native", "json", "json, hermes, qwen25_coder"),
        ("qwen3-8b", "native", "hermes", "hermes"),
        ("mystery", "validated", "json", "auto"),
        ("local:smollm2-135m", "structured", "action", "action"),
    ],
)
def test_the_profile_decides(model, mode, dialect, watched):
    decided = make_plan(resolve(model))
    assert (decided.mode.name, decided.dialect.name) == (mode, dialect)
    assert (decided.watched and decided.watched.name) == watched


def test_what_is_asked_for_is_watched_for():
    assert make_plan(resolve("gpt-4o"), "validated").watched.name == "json"
    assert make_plan(resolve("some-model", {"dialect": "react"})).watched.name == "react"
    assert make_plan(resolve("some-model", {"dialect": "hermes", "watch": ""})).watched.name == "hermes"
    assert make_plan(resolve("llama-3-70b", {"watch": "hermes"})).watched.name == "hermes"


def test_what_is_asked_for_in_the_prompt_may_come_in_json():
    assert make_plan(resolve("qwen3-8b"), "validated").watched.name == "hermes, json"
    assert make_plan(resolve("qwen2.5-coder-1.5b"), "validated").watched.name == "json, hermes, qwen25_coder"
    assert make_plan(resolve("qwen3-8b", {"watch": "hermes"}), "validated").watched.name == "hermes"


def test_a_model_of_a_known_family_is_watched_for_what_it_writes_itself():
    """All of `auto` is for models of which nothing is known."""
    for family in known_families():
        watched = make_plan(resolve(family)).watched
        assert watched is None or "auto" not in watched.name, family


def test_every_family_says_where_it_is_known_from():
    for family in known_families():
        resolution = resolve(family)
        assert resolution.sources["watch"].startswith("family "), family
        assert len(resolution.evidence["watch"]) > 10, family


def test_several_dialects_are_watched_for_at_once():
    for watch in (["hermes", "json"], ("hermes", "json")):
        decided = make_plan(resolve("some-model", {"uses_tools": True, "watch": watch}))
        assert decided.watched.name == "hermes, json"
        assert [dialect.name for dialect in decided.watched.alternatives] == ["hermes", "json"]
        assert decided.watched is make_plan(resolve("other", {"uses_tools": True, "watch": watch})).watched
    with pytest.raises(CallerError, match="no dialect 'klingon'"):
        make_plan(resolve("some-model", {"watch": ["hermes", "klingon"]}))


@table("model", ["qwen2.5-coder-1.5b", "local:qwen2.5-coder-0.5b"])
@table(
    "text",
    [
        'Let me see:\n```json\n{"name": "look", "arguments": {}}\n```\nThat shows what there is.',
        '{"name": "look", "arguments": {}}',
        '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>',
    ],
)
def test_what_a_qwen_coder_writes_is_a_call(model, text):
    events = parse(text, [ToolDeclaration("look")], make_plan(resolve(model)).watched)
    assert [event.name for event in events if isinstance(event, InvocationEnded)] == ["look"]


def known_families():
    table = tomllib.loads(files("callboard.profiles").joinpath("profiles.toml").read_text("utf-8"))
    return [pattern for family in table["families"] for pattern in family["patterns"]]


def test_what_the_caller_asks_for_wins():
    assert make_plan(resolve("gpt-4o"), "structured").dialect.name == "action"
    assert make_plan(resolve("gpt-4o"), "validated").dialect.name == "json"
    with pytest.raises(CallerError, match="no mode 'magic'; there are native, structured, validated, parsed"):
        make_plan(resolve("gpt-4o"), "magic")


def test_a_model_that_says_nothing_is_asked_natively():
    assert get_plan(object()).mode.name == "native"
