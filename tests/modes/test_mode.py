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
    ("model", "mode", "dialect"),
    [
        ("gpt-4o", "native", None),
        ("llama-3-70b", "native", "json"),
        ("mistral-7b", "validated", "json"),
        ("local-model", "validated", "json"),
        ("local:qwen2.5-coder-0.5b", "native", "json"),
        ("local:smollm2-135m", "structured", "action"),
    ],
)
def test_the_profile_decides(model, mode, dialect):
    decided = plan(resolve(model))
    assert (decided.mode.name, decided.dialect and decided.dialect.name) == (mode, dialect)


def test_what_the_caller_asks_for_wins():
    assert plan(resolve("gpt-4o"), "structured").dialect.name == "action"
    assert plan(resolve("gpt-4o"), "validated").dialect.name == "json"
    with pytest.raises(CallerError, match="no mode 'magic'; there are native, structured, validated, parsed"):
        plan(resolve("gpt-4o"), "magic")


def test_a_model_that_says_nothing_is_asked_natively():
    assert plan_of(object()).mode.name == "native"
