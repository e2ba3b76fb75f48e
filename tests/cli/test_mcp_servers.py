import asyncio

from tests.tables import table

from callboard.cli.mcp_servers import make_elicit, make_event_printer
from callboard.mcp.connection_state import Logged, StateChanged, ToolsChanged

FORM = {
    "properties": {
        "city": {"type": "string", "title": "City"},
        "days": {"type": "integer", "default": 3},
        "rain": {"type": "boolean"},
    },
    "required": ["city"],
}


@table(
    ("typed", "answer"),
    [
        (["Bern", "4", "True", "y"], ("accept", {"city": "Bern", "days": 4, "rain": True})),
        (["Bern", "", "", "yes"], ("accept", {"city": "Bern"})),
        (["Bern", "many", "4.5", "4", "", "y"], ("accept", {"city": "Bern", "days": 4})),
        (["Bern", "many", "", "", "y"], ("accept", {"city": "Bern"})),
        (["Bern", "", "perhaps", "no", "y"], ("accept", {"city": "Bern", "rain": False})),
        (["Bern", "", "", ""], ("decline", None)),
        (["", "", "", "y"], ("decline", None)),
    ],
)
def test_a_form_is_filled_in(typed, answer):
    told = []
    lines = iter([f"{each}\n" for each in typed])

    async def read():
        return next(lines)

    ask = make_elicit(lambda line, _: told.append(line), read)
    assert asyncio.run(ask("s asks: where?\x1b[2J", FORM)) == answer
    assert told[:2] == ["s asks: where? [2J", "  city (City; string):"]


def test_without_a_form_it_is_yes_or_no():
    async def read():
        return "y\n"

    told = []
    assert asyncio.run(make_elicit(lambda line, _: told.append(line), read)("s asks: go to\nhttps://x", {})) == (
        "accept",
        {},
    )
    assert told == ["s asks: go to https://x", "agree? [y/N]"]


EVENTS = [
    Logged("s", "info", "fine"),
    Logged("s", "error", "bad\x1b[31m"),
    StateChanged("s", "backoff", "not there"),
    StateChanged("s", "ready"),
    StateChanged("s", "backoff", "gone"),
    ToolsChanged("s"),
]


def test_what_a_server_does_is_told():
    def told(*, verbose):
        lines = []
        show = make_event_printer(lambda line, _: lines.append(line), verbose=verbose)
        for event in EVENTS:
            show(event)
        return lines

    assert told(verbose=False) == [
        "s (error): bad [31m",
        "s is disconnected: gone; the next call connects it again",
    ]
    assert told(verbose=True) == [
        "s (info): fine",
        "s (error): bad [31m",
        "s is backoff: not there",
        "s is ready",
        "s is disconnected: gone; the next call connects it again",
        "s changed its tools",
    ]


def test_what_is_typed_that_does_not_fit_is_asked_for_again():
    told = []
    lines = iter(["many\n", "3\n", "y\n"])

    async def read():
        return next(lines)

    form = {"properties": {"days": {"type": "integer"}}}
    assert asyncio.run(make_elicit(lambda line, _: told.append(line), read)("s asks", form)) == ("accept", {"days": 3})
    assert "  'many' is not a valid integer; try again, or press enter to omit it:" in told
