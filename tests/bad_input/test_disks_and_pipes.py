"""Files that cannot be written and readers that are gone: one line at most, and no transcript is spoilt."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shlex
import subprocess
import sys
from functools import partial

import pytest
from tests.tables import table

from callboard import Agent, tool
from callboard.agent import Transcript
from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    ReplyEnded,
    ReplyStarted,
    ResultCanister,
    TextPiece,
    UserCanister,
)
from callboard.testing import Call, FakeBackend, ScriptedModel

LONG = [ReplyStarted(), *[TextPiece(f"line {number}\n") for number in range(20_000)], ReplyEnded("stop")]
TOOL = "@tool\ndef act() -> str:\n    return 'y' * 3000\n"


@pytest.fixture
def small_files(monkeypatch):
    """Gives what keeps a child's files below a size: it is not killed, its writes fail."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return lambda size: partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(
    ("size", "replies", "kinds"),
    [
        pytest.param(10, ["Hello."], [], id="the prompt"),
        pytest.param(2000, ["x" * 3000], [UserCanister], id="the reply"),
        pytest.param(2000, "call", [UserCanister, InvocationCanister], id="the result"),
    ],
)
def test_a_full_disk(spawn, script, small_files, size, replies, kinds):  # noqa: PLR0917 - three are fixtures
    replies = [script(), "Done."] if replies == "call" else replies
    seen = spawn(replies, tools=TOOL, before=small_files(size))
    assert seen.code == 1
    assert seen.lines[-1] == f"callboard: {seen.path}: File too large"
    assert len(seen.lines) == (2 if kinds[1:] else 1)
    # What was kept before is whole, and nothing is left of the rest.
    assert [type(each) for each in seen.canisters] == kinds
    assert not seen.path.stat().st_size or seen.path.read_bytes().endswith(b"\n")


def test_a_transcript_goes_on_after_the_disk_was_full(tmp_path, monkeypatch):
    transcript = Transcript(tmp_path / "messages.jsonl")
    transcript.append(UserCanister("Go."))
    write = os.write
    left = [5]

    def full(file, data):
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: left.pop()])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left") as caught:
        transcript.append(AssistantCanister("lost"))
    assert caught.value.filename == str(transcript.path)
    monkeypatch.undo()
    transcript.append(AssistantCanister("Done."))
    assert transcript.read() == [UserCanister("Go."), AssistantCanister("Done.")]


def test_a_transcript_goes_on_after_a_process_died_in_a_line(tmp_path):
    transcript = Transcript(tmp_path / "messages.jsonl")
    transcript.append(UserCanister("Go."))
    whole = transcript.path.read_bytes()
    for cut in (b"{", b'{"role":"assistant","content":[' + b" " * 10_000):
        transcript.path.write_bytes(whole + cut)
        transcript.append(AssistantCanister("Done."))
        assert transcript.read() == [UserCanister("Go."), AssistantCanister("Done.")]


class Full(list):
    """A store that keeps so many canisters, and then none."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def append(self, item):
        if len(self) == self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(item)


@table("room", range(4))
def test_a_store_that_is_full(room):
    """The run ends with the store's own error; the result has everything that was said."""
    ran = []

    @tool
    def act() -> str:
        """Act."""
        ran.append(True)
        return "acted"

    store = Full(room)
    run = Agent(ScriptedModel([Call("act"), "Done."]), [act], store=store).stream("Go.")

    async def follow():
        async for _ in run:
            pass

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(follow())
    assert len(store) == room
    assert len(ran) == (room > 1)
    if room:
        assert run.result.state == "failed"
        assert [*run.result.canisters[:room]] == store
        called = [each.identifier for each in run.result.canisters if isinstance(each, InvocationCanister)]
        assert [each.invocation_id for each in run.result.canisters if isinstance(each, ResultCanister)] == called


@pytest.fixture
def shell(data, write):
    """Runs `callboard run` as CALLBOARD in a line of a shell; the line's outcome, and the one transcript."""

    def shell(line, replies, tools=""):
        async def scenario():
            async with FakeBackend(replies) as backend:
                options = ["--model", "m", "--base-url", backend.url, *(["--tools", write(tools)] if tools else [])]
                program = "from callboard.cli import main; main()"
                command = shlex.join([sys.executable, "-c", program, "run", "Go.", *options])
                child = await asyncio.create_subprocess_shell(
                    line.replace("CALLBOARD", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                async with asyncio.timeout(120):
                    out, err = await child.communicate()
                return child.returncode, out.decode(), err.decode()

        outcome = asyncio.run(scenario())
        (path,) = data.glob("callboard/conversations/*/messages.jsonl")
        return (*outcome, Transcript(path).read())

    return shell


def test_a_reader_that_leaves(shell):
    code, out, err, canisters = shell("{ CALLBOARD; echo $? >&2; } | head -1", [LONG])
    assert (code, out, err) == (0, "line 0\n", "1\n")
    asked, said = canisters
    assert asked.text == "Go."
    assert said.text.startswith("line 0\nline 1\n")


def test_a_reader_that_leaves_before_a_call(shell, script):
    """What the call would do is not done any more: nobody sees it."""
    replies = [[ReplyStarted(), TextPiece("line\n"), *[TextPiece("more\n" * 1000)] * 100, *script()[1:]], "Done."]
    code, out, err, canisters = shell("{ CALLBOARD --json; echo $? >&2; } | head -1", replies, TOOL)
    assert (code, out.count("\n"), err) == (0, 1, "1\n")
    assert not any(isinstance(each, ResultCanister) for each in canisters)


@pytest.mark.parametrize("line", ["CALLBOARD >&-", "CALLBOARD --json >&- <&-"])
def test_a_closed_output(shell, script, line):
    code, out, err, canisters = shell(line, [script(), "Done."], TOOL)
    assert (code, out) == (0, "")
    assert err.splitlines()[:1] == ([] if "json" in line else ["-> act()"])
    assert canisters[-1].text == "Done."


def test_a_closed_error_output(shell, script):
    code, out, err, canisters = shell("CALLBOARD 2>&-", [script(), "Done."], TOOL)
    assert (code, out, err) == (0, "Done.\n", "")
    assert canisters[-1].text == "Done."


def test_a_closed_input_is_nobody_to_ask(shell, script):
    source = "@tool(approval=True)\ndef act() -> str:\n    return 'acted'\n"
    code, out, err, _ = shell("CALLBOARD <&-", [script(), "Done."], source)
    assert (code, out) == (0, "Done.\n")
    assert "No terminal to confirm in: denied" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux: only it has such a file")  # noqa: PTH110 - a decorator
@pytest.mark.parametrize("option", ["", " --json"])
def test_an_output_that_is_full(shell, option):
    code, out, err, canisters = shell(f"CALLBOARD{option} > /dev/full", ["Hi."])
    assert (code, out, err) == (1, "", "callboard: No space left on device\n")
    assert canisters[0].text == "Go."
