"""Models that are programs, run as a user would run them."""

import asyncio
import shlex
import sys
import textwrap

import pytest
from tests.tables import table

from callboard import Agent, access_model, tool
from callboard.core import ReplyEnded, ReplyFailed, Request, SupervisorCanister, TextPiece, UserCanister, reply_events
from callboard.errors import CallerError
from callboard.providers.command import render_prompt


def program(tmp_path, body):
    """The name of a model that runs these lines of Python."""
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(body), "utf-8")
    return f"command:{shlex.quote(sys.executable)} -I {shlex.quote(str(path))}"


def events_of(name, *canisters):
    async def scenario():
        model = access_model(name)
        try:
            return [event async for event in reply_events(model, Request(name, canisters or (UserCanister("Hi?"),)))]
        finally:
            await model.aclose()

    return asyncio.run(scenario())


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextPiece))


def test_it_reads_the_prompt_and_prints_the_reply(tmp_path):
    events = events_of(program(tmp_path, "import sys\nprint(sys.stdin.read().upper() + ' é', end='')"))
    assert text_of(events) == "HI? é"
    assert events[-1] == ReplyEnded("stop")


def test_a_failure_says_what_the_program_said(tmp_path):
    events = events_of(program(tmp_path, "import sys\nprint('half')\nsys.exit('no such model')"))
    assert isinstance(events[-1], ReplyFailed)
    assert events[-1].message.endswith("ended with status 1")
    assert events[-1].excerpt == "no such model"
    assert text_of(events) == "half\n"


def test_a_program_there_is_not():
    (failed,) = events_of("command:no-such-program-here run x")
    assert (failed.party, failed.message) == ("caller", "no-such-program-here cannot be run: No such file or directory")


@table("name", ["command:", "command:'open"])
def test_no_command_is_said_before_anything_runs(name):
    with pytest.raises(CallerError):
        access_model(name)


def test_a_large_prompt_that_nobody_reads_hangs_nothing(tmp_path):
    events = events_of(program(tmp_path, "print('ok', end='')"), UserCanister("x" * 5_000_000))
    assert text_of(events) == "ok"


async def test_closing_the_reply_stops_the_program(tmp_path):
    name = program(tmp_path, "import time\nprint('a', flush=True)\ntime.sleep(600)")

    replying = reply_events(access_model(name), Request(name, (UserCanister("?"),)))
    async for event in replying:
        if isinstance(event, TextPiece):
            break
    await replying.aclose()


def test_speakers_are_named_where_there_is_more_than_one():
    assert render_prompt((UserCanister("Hi."),)) == "Hi."
    assert render_prompt((SupervisorCanister("Be brief."), UserCanister("Hi."))) == (
        "System: Be brief.\n\nUser: Hi.\n\nAssistant:"
    )


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_it_calls_tools_in_its_dialect(tmp_path):
    name = program(
        tmp_path,
        """
        import sys
        asked = sys.stdin.read()
        print("It is 5." if "output:\\n5" in asked else '```json\\n{"name": "add", "arguments": {"a": 2, "b": 3}}\\n```')
        """,
    )
    result = asyncio.run(Agent(name, [add]).run("What is 2 and 3?"))
    assert (result.state, result.output.strip()) == ("completed", "It is 5.")
