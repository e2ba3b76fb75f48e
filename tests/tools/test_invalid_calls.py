from __future__ import annotations

from tests.tables import table

from callboard import Invoker, tool
from callboard.core import InvocationCanister
from callboard.tools import check_call


@tool
def get_weather(location: str) -> str:
    """Get the weather."""


@tool
def buy_socks(pairs: int) -> str:
    """Buy socks."""


INVOKERS = {each.name: Invoker.of(each) for each in (get_weather, buy_socks)}


def called(name="get_weather", arguments=None, raw=""):
    return InvocationCanister("call_1", name, arguments, raw)


@table("arguments", [{}, {"location": "Oslo"}, {"city": "Oslo"}])
def test_what_can_run_is_not_refused(arguments):
    assert check_call(called(arguments=arguments), INVOKERS) is None


@table(
    ("invocation", "why", "category", "message"),
    [
        (called("get_wether", {}), "", "not_found", "no tool 'get_wether'; did you mean 'get_weather'?"),
        (called("weather", {}), "", "not_found", "no tool 'weather'; did you mean 'get_weather'?"),
        (called("zzz", {}), "", "not_found", "no tool 'zzz'; there are get_weather, buy_socks"),
        (called("", {}), "", "not_found", "no tool ''; there are get_weather, buy_socks"),
        (called("get_wether", None, "{"), "length", "not_found", "no tool 'get_wether'; did you mean 'get_weather'?"),
        (
            called(raw='"Oslo"'),
            "",
            "validation",
            "ArgValidationError: arguments\n  Input should be a JSON object, not '\"Oslo\"'",
        ),
        (
            called(raw='{"location": "Os'),
            "length",
            "validation",
            (
                "the call was cut at the reply's length limit before its arguments ended; make it shorter; "
                'you wrote \'{"location": "Os\''
            ),
        ),
        (
            called(raw='{"location": "Os'),
            "cut",
            "validation",
            'the call ended before its arguments were whole (cut); you wrote \'{"location": "Os\'',
        ),
    ],
)
def test_what_cannot_run_is_told_to_the_model(invocation, why, category, message):
    result = check_call(invocation, INVOKERS, why)
    assert result.invocation_id == "call_1"
    assert (result.error.category, result.error.message) == (category, message)
    assert result.text == f"Error: {message}"


def test_without_any_tools():
    assert check_call(called(), {}).error.message == "no tool 'get_weather'; there are no tools"


def test_little_of_what_a_model_wrote_is_repeated():
    assert len(check_call(called("x" * 100_000), INVOKERS).text) < 200
    assert len(check_call(called(raw="x" * 100_000), INVOKERS).text) < 400


def test_little_of_a_long_roster_is_listed():
    many = dict.fromkeys((f"tool_{number}" for number in range(1000)), INVOKERS["buy_socks"])
    assert check_call(called("zzz"), many).text.endswith("tool_19 ...")
