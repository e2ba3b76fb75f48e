import pytest

from callboard.errors import CallerError
from callboard.modes import MODES, plan, plan_of
from callboard.profiles import resolve


def test_a_mode_is_a_row():
    rows = [(mode.name, mode.declares, mode.dialect, mode.validated) for mode in MODES.values()]
    assert rows == [
        ("native", "wire", "", True),
        ("structured", "constraint", "action", True),
        ("validated", "prompt", "", True),
        ("parsed", "prompt", "json", False),
    ]


@pytest.mark.parametrize(
    ("model", "mode", "dialect", "watched"),
    [
        ("gpt-4o", "native", "json", None),
        ("llama-3-70b", "native", "llama3_json", "auto"),
        ("mistral-7b", "validated", "json", "auto"),
        ("local-model", "validated", "json", "auto"),
        ("local:qwen2.5-coder-0.5b", "native", "json", "auto"),
        ("local:smollm2-135m", "structured", "action", "action"),
    ],
)
def test_the_profile_decides(model, mode, dialect, watched):
    decided = plan(resolve(model))
    assert (decided.mode.name, decided.dialect.name) == (mode, dialect)
    assert (decided.watched and decided.watched.name) == watched


def test_what_is_asked_for_is_watched_for():
    assert plan(resolve("gpt-4o"), "validated").watched.name == "json"
    assert plan(resolve("some-model", {"dialect": "react"})).watched.name == "react"
    assert plan(resolve("some-model", {"dialect": "hermes", "watch": ""})).watched.name == "hermes"
    assert plan(resolve("llama-3-70b", {"watch": "hermes"})).watched.name == "hermes"


def test_what_the_caller_asks_for_wins():
    assert plan(resolve("gpt-4o"), "structured").dialect.name == "action"
    assert plan(resolve("gpt-4o"), "validated").dialect.name == "json"
    with pytest.raises(CallerError, match="no mode 'magic'; there are native, structured, validated, parsed"):
        plan(resolve("gpt-4o"), "magic")


def test_a_model_that_says_nothing_is_asked_natively():
    assert plan_of(object()).mode.name == "native"
