"""The end of a command's output on disk while the command runs."""

import asyncio
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import SandboxUnavailable
from callboard.sandbox import CommandLimits, Confinement, find_sandbox
from callboard.sandbox.process import MAX_BYTES, BoundedOutput, OutputFile, read_end
from callboard.sandbox.supervised_run import Unconfined


def test_the_end_is_in_the_file_and_no_more(tmp_path):
    file = OutputFile(path := tmp_path / "output")
    assert read_end(path, 100) == ""
    whole = b""
    for number in range(9000):
        line = b"%d\n" % number
        whole += line
        file.feed(line)
        assert path.stat().st_size <= 2 * MAX_BYTES
    assert whole.endswith(path.read_bytes())
    assert path.stat().st_size >= MAX_BYTES
    assert read_end(path, 13) == "...\n8998\n8999\n"
    file.feed(b"x" * 9 * MAX_BYTES)
    assert path.read_bytes() == b"x" * MAX_BYTES
    file.close(keep=True)
    assert path.exists()
    OutputFile(path).close(keep=False)
    assert read_end(path, 100) is None


def test_a_file_that_cannot_be_written_stops_no_command(tmp_path):
    file = OutputFile(tmp_path / "missing" / "output")
    file.feed(b"text")
    file.close(keep=False)


@pytest.mark.parametrize("ends", [True, False])
def test_the_file_is_there_until_the_outcome_is(sandbox, workspace, tmp_path, ends):
    path = tmp_path / "output"
    command = ["sh", "-c", f"echo begun; sleep {0 if ends else 4713}"]
    confinement = Confinement(workspace=workspace, output_file=path, limits=CommandLimits(seconds=60))

    async def scenario():
        task = asyncio.create_task(sandbox.run(command, confinement))
        if ends:
            return await task
        while not read_end(path, 100):  # noqa: ASYNC110  # another process writes what we wait for
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return None

    asyncio.run(scenario())
    assert read_end(path, 100) == (None if ends else "begun\n")


# What is kept of an output.


def fed_output(pieces, limit):
    output = BoundedOutput(limit)
    for piece in pieces:
        output.feed(piece)
    return output


@table(
    ("data", "limit", "value"),
    [
        (b"", 10, b""),
        (b"0123456789", 10, b"0123456789"),
        (b"0123456789a", 10, b"01234\n[1 bytes are missing here]\n6789a"),
        (b"0123456789a", 3, b"01\n[8 bytes are missing here]\na"),
        (b"0123", 0, b"\n[4 bytes are missing here]\n"),
    ],
)
def test_cases(data, limit, value):
    assert fed_output([data], limit).value() == value


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_any_pieces(pieces, limit):
    whole = b"".join(pieces)
    output = fed_output(pieces, limit)
    assert output.total == len(whole)
    assert output.value() == fed_output([whole], limit).value()
    if len(whole) <= limit:
        assert output.value() == whole
    else:
        line = re.search(rb"\n\[(\d+) bytes are missing here\]\n", output.value())
        assert line
        assert len(output.value()) - len(line[0]) + int(line[1]) == len(whole)


def test_memory_is_bounded():
    output = fed_output([bytes(1000)] * 1000, 5000)
    assert len(output._beginning) + len(output._end) < 12000


# What is told of a command: its program and how it ended; its arguments only where content is asked for.


SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


def run_unconfined(tmp_path, program, **limits):
    confinement = Confinement(workspace=tmp_path, limits=CommandLimits(**limits))
    return asyncio.run(Unconfined().run([sys.executable, "-c", program], confinement))


@pytest.mark.parametrize("capture", [False, True])
def test_a_command_is_a_span(telemetry, tmp_path, capture):
    told = telemetry(capture_content=capture)
    run_unconfined(tmp_path, f"print('{SECRET}'); raise SystemExit(3)")
    (span,) = told.spans
    about = dict(span.attributes)
    arguments = about.pop("process.command_args", None)
    assert span.name == f"execute_command {about['process.executable.name']}"
    assert about["process.exit.code"] == 3
    assert about["callboard.sandbox.name"] == "none"
    assert len(about) == 3
    assert (arguments is not None) == capture
    assert SECRET not in span.to_json()


def test_a_command_that_is_ended_failed(telemetry, tmp_path):
    told = telemetry()
    run_unconfined(tmp_path, "import time; time.sleep(600)", seconds=0.1)
    assert told.spans[0].attributes["error.type"] == "timeout"
    assert told.spans[0].attributes["callboard.command.stop_reason"] == "timeout"


# Paths that a command neither reads nor changes.


@pytest.fixture
def hiding():
    try:
        found = asyncio.run(find_sandbox(prefer="bubblewrap"))
    except SandboxUnavailable as error:
        pytest.skip(f"no hiding: {error}")
    if found.name != "bubblewrap":
        pytest.skip("no hiding: only bubblewrap can hide what lies in the workspace")
    return found


def test_a_hidden_path_is_neither_read_nor_changed_nor_made(hiding, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "app" / "private").mkdir(parents=True)
    (tmp_path / "app" / "private" / "key").write_text("hunter2")
    (tmp_path / "app" / "plain").write_text("plain")
    (tmp_path / ".env").write_text("hunter2")
    confinement = Confinement(workspace=tmp_path, hidden=(".env", "app/private", ".github"))
    lines = [
        "cat .env app/private/key app/plain",
        "echo mine > .env; echo mine > app/private/key; rm -rf .env app/private",
        "mv app elsewhere; ln .env hard; mkdir -p .github/workflows; echo mine > .github/x; echo mine > app/new",
        "find . -type f | xargs cat",
    ]
    outcome = asyncio.run(hiding.run(["/bin/sh", "-c", "\n".join(lines)], confinement))
    assert b"plain" in outcome.output
    assert b"hunter2" not in outcome.output
    assert (tmp_path / ".env").read_text() == (tmp_path / "app" / "private" / "key").read_text() == "hunter2"
    assert (tmp_path / "app" / "new").read_text() == "mine\n"
    assert {path.name for path in tmp_path.iterdir()} == {".git", ".env", "app"}
