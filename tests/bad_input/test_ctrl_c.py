"""Ctrl-C at every stage: exit code 130, one line, and a transcript in which every call has its result."""

from __future__ import annotations

import os
import pty
import re

import pytest

from callboard.core import ReasoningPiece, ReplyStarted, TextPiece, decode_event
from callboard.testing import Silence, StatusReply

SIGN = "\ndef sign(text):\n    print(text, file=sys.stderr, flush=True)\n\n"
SYNC = SIGN + "@tool\ndef act() -> str:\n    sign('IN')\n    {body}\n"
ASYNC = SIGN + "@tool\nasync def act() -> str:\n    sign('IN')\n    {body}\n"
CANCELLED = ["Error: the run was cancelled"]
TOLD = b"cancelled; the transcript is kept in "

CLEANS_UP = """try:
        await asyncio.Event().wait()
    finally:
        sign('CLEANING')
        await asyncio.sleep({seconds})
        sign('CLEAN')
"""
PROGRAM = """with subprocess.Popen(["sleep", "1000"]):
        sign("STARTED")
"""
NEVER_ENDS = """while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            sign('NO')
"""
HOLDS_THE_LOOP = """while not any(task.cancelling() for task in asyncio.all_tasks()):
        time.sleep(0.01)
    sign('HELD')
    while True:
        time.sleep(0.01)
"""


def ended(seen):
    """What every cancelled run has in common."""
    assert seen.code == 130
    assert seen.paired
    assert re.fullmatch(r"cancelled; the transcript is kept in (.*)", seen.lines[-1])[1] == str(seen.path)
    return seen.lines[:-1]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        pytest.param((), [], id="before a reply"),
        pytest.param((ReplyStarted(), TextPiece("Hel"), ReasoningPiece("HM")), ["Hel"], id="in a reply"),
    ],
)
def test_while_a_reply_streams(spawn, after, said):
    seen = spawn([Silence(after=after)], "--verbose", interrupts=[b"HM" if said else b"round 1\n"])
    assert ended(seen)[0] == "round 1"
    assert seen.out == "".join([f"{text}\n" for text in said])
    assert seen.said[1:] == said


@pytest.mark.parametrize(
    ("source", "signs"),
    [
        pytest.param(ASYNC.format(body="await asyncio.Event().wait()"), [b"IN\n"], id="async"),
        pytest.param(SYNC.format(body="threading.Event().wait()"), [b"IN\n"], id="blocking"),
        pytest.param(SYNC.format(body=PROGRAM), [b"STARTED\n"], id="a program"),
        pytest.param(ASYNC.format(body=CLEANS_UP.format(seconds=0)), [b"IN\n"], id="cleans up"),
        pytest.param(
            ASYNC.format(body=CLEANS_UP.format(seconds=1000)), [b"IN\n", b"CLEANING\n"], id="cleans up for long"
        ),
        pytest.param(ASYNC.format(body=NEVER_ENDS), [b"IN\n", b"NO\n", TOLD], id="will not be cancelled"),
        pytest.param(ASYNC.format(body=HOLDS_THE_LOOP), [b"IN\n", b"HELD\n"], id="holds the event loop"),
        pytest.param(
            ASYNC.format(body="await asyncio.to_thread(time.sleep, 1000)"), [b"IN\n"], id="a thread of its own"
        ),
        pytest.param(
            ASYNC.format(body="await asyncio.to_thread(time.sleep, 1000)"),
            [b"IN\n", TOLD],
            id="a thread of its own, twice",
        ),
    ],
)
def test_while_a_tool_runs(spawn, script, source, signs):
    seen = spawn([script()], tools=source, interrupts=signs)
    before = ended(seen)
    assert before[:2] == ["-> act()", "IN"]
    assert seen.out == ""
    assert seen.results == CANCELLED
    assert ("CLEAN" in before) == ("asyncio.sleep(0)" in source)


def test_what_ended_before_keeps_its_result(spawn, script):
    quick = "@tool\ndef quick() -> int:\n    return 42\n"
    # The second call begins where the first has ended.
    slow = SIGN + "@tool\nasync def act() -> str:\n    sign('IN')\n    await asyncio.Event().wait()\n"
    seen = spawn([script("quick"), script("act", "{}", "call_2")], tools=quick + slow, interrupts=[b"IN\n"])
    assert ended(seen) == ["-> quick()", "<- 42", "-> act()", "IN"]
    assert seen.results == ["42", *CANCELLED]


def test_while_a_retry_waits(spawn):
    seen = spawn([StatusReply(429, headers={"Retry-After": "50"})], interrupts=[b"trying again in 50.0 s\n"])
    assert ended(seen) == ["attempt 1: the server answered 429; trying again in 50.0 s"]
    assert (seen.out, seen.said) == ("", ["Go."])


def test_while_approval_is_asked(spawn, script):
    ours, theirs = pty.openpty()
    try:
        seen = spawn(
            [script()],
            tools="@tool(approval=True)\ndef act() -> str:\n    return 'acted'\n",
            interrupts=[b"[y]es, [n]o\n"],
            stdin=theirs,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended(seen) == ["-> act()", "act always needs approval", "Run act? {}", "[y]es, [n]o"]
    assert (seen.out, seen.results) == ("", CANCELLED)


def test_events_stay_events(spawn, script):
    source = ASYNC.format(body="await asyncio.Event().wait()")
    seen = spawn([script()], "--json", tools=source, interrupts=[b"IN\n"])
    assert ended(seen) == ["IN"]
    assert [type(decode_event(line)).__name__ for line in seen.out.splitlines()][-2:] == [
        "InvocationEnded",
        "ReplyEnded",
    ]
    assert seen.results == CANCELLED


def test_while_a_tools_module_is_imported(spawn):
    # One long sleep would miss a signal that arrives just before it.
    source = "print('IN', file=sys.stderr, flush=True)\nwhile True:\n    time.sleep(0.01)\n"
    seen = spawn([], tools=source, interrupts=[b"IN\n"])
    assert (seen.code, seen.out, seen.err, seen.path) == (130, "", "IN\n", None)


def test_while_a_tool_is_called_by_hand(spawn):
    source = SYNC.format(body="threading.Event().wait()")
    seen = spawn([], tools=source, command=("tools", "call", "act"), interrupts=[b"IN\n"])
    assert (seen.code, seen.out, seen.err, seen.path) == (130, "", "IN\n", None)
