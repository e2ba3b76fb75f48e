"""Tools that misbehave while they run: the model is told, and the run goes on."""

from __future__ import annotations

import re
import sys

import pytest

from callboard.core import FileContent, PictureContent, decode_event

SYNC = "@tool{options}\ndef act() -> object:\n    {body}\n"
ASYNC = "@tool{options}\nasync def act() -> object:\n    {body}\n"
UNSAYABLE = """
class Unsayable(Exception):
    def __str__(self):
        raise ValueError("no")
"""
PEAK = """
import atexit

@atexit.register
def peak():
    with open("/proc/self/status") as status:
        print(*[line.split()[1] for line in status if line.startswith("VmHWM")], file=sys.stderr)
"""


@pytest.mark.parametrize("form", [SYNC, ASYNC])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError('bad\\nluck')", "Error: ValueError: bad luck"),
        ("raise ValueError('\\x1b[2J' + 'x' * 1000)", "Error: ValueError: [2Jxxx"),
        ("raise Unsayable", "Error: Unsayable: its text cannot be had: ValueError"),
        ("raise PermissionError(13, 'Permission denied', '/etc/shadow')", "Error: PermissionError: [Errno 13] Perm"),
        ("sys.exit(5)", "Error: RuntimeError: SystemExit: 5"),
        ("raise asyncio.CancelledError", "Error: CancelledError"),
        ("raise RecursionError('too deep')", "Error: RecursionError: too deep"),
        ("raise MemoryError", "Error: MemoryError"),
        ("return Unsayable()", "Error: ValueError: no"),
        ("return '\\ud800'", "\N{REPLACEMENT CHARACTER}"),
        ("return ''", "(nothing)"),
        ("return None", "null"),
        ("return [[float('nan')]]", '[["NaN"]]'),
    ],
)
def test_what_a_tool_raises_and_returns(ask, script, form, body, told):
    seen = ask([script(), "Done."], tools=UNSAYABLE + form.format(options="", body=body))
    assert (seen.code, seen.out, seen.paired) == (0, "Done.\n", True)
    called, returned = seen.lines
    assert called == "-> act()"
    assert returned.startswith(f"<- {told}")
    assert len(returned) < 200
    seen.backend.assert_complete()


def test_a_keyboard_interrupt_of_a_tools_own(ask, script):
    """In its thread it is the tool's failure; in the event loop it cannot be told from ctrl-C."""
    body = "raise KeyboardInterrupt"
    seen = ask([script(), "Done."], tools=SYNC.format(options="", body=body))
    assert (seen.code, seen.out, seen.results) == (0, "Done.\n", ["Error: RuntimeError: KeyboardInterrupt: "])


def test_a_keyboard_interrupt_in_the_event_loop_is_ctrl_c(spawn, script):
    seen = spawn([script()], tools=ASYNC.format(options="", body="raise KeyboardInterrupt"))
    assert (seen.code, seen.out, seen.results) == (130, "", ["Error: the run was cancelled"])
    assert seen.lines == ["-> act()", f"cancelled; the transcript is kept in {seen.path}"]


@pytest.mark.parametrize(
    ("form", "body"),
    [(SYNC, "threading.Event().wait()"), (ASYNC, "await asyncio.Event().wait()")],
)
def test_a_tool_that_hangs(spawn, script, form, body):
    """Its thread does not keep the process."""
    seen = spawn([script(), "Done."], tools=form.format(options="(timeout=0.5)", body=body))
    assert (seen.code, seen.out, seen.paired) == (0, "Done.\n", True)
    note = ["note (alert): act did not return within 0.5 s; its thread was left running"] if form is SYNC else []
    assert seen.lines == ["-> act()", *note, "<- Error: Tool execution timed out. It had 0.5 s."]


@pytest.mark.parametrize(
    ("body", "told", "content"),
    [
        ("return b'abc\\xff'", "[4 bytes of application/octet-stream]", FileContent(b"abc\xff")),
        (
            "return b'\\x89PNG\\r\\n\\x1a\\n'",
            "[8 bytes of image/png]",
            PictureContent(b"\x89PNG\r\n\x1a\n", "image/png"),
        ),
    ],
)
def test_bytes(ask, see, script, write, body, told, content):  # noqa: PLR0917 - four are fixtures
    source = SYNC.format(options="", body=body)
    seen = ask([script(), "Done."], tools=source)
    assert (seen.code, seen.out, seen.lines) == (0, "Done.\n", ["-> act()", f"<- {told}"])
    assert seen.canisters[2].content == (content,)
    assert see("tools", "call", "act", "--tools", write(source)).out == f"{told}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux: reads the peak of memory from /proc")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return 'x' * 100_000_000", r"xxx+ \.\.\. \(262\d\d\d characters\)"),
        ("return b'x' * 100_000_000", r"\[100000000 bytes, which is more than the 16777216 that a result may have\]"),
        ("raise ValueError('x' * 100_000_000)", r"Error: ValueError: xxx+ \.\.\. \(262\d\d\d characters\)"),
    ],
)
def test_a_hundred_megabytes(spawn, script, body, told):
    seen = spawn([script(), "Done."], tools=SYNC.format(options="", body=body) + PEAK)
    assert (seen.code, seen.out, seen.paired) == (0, "Done.\n", True)
    called, returned, peak = seen.lines
    assert called == "-> act()"
    assert re.fullmatch(f"<- {told}", returned)
    assert len(returned) < 200
    assert len(seen.results[0]) < 300_000
    assert int(peak) < 700_000  # KB


def test_what_a_tool_prints_is_no_part_of_the_answer(spawn, script):
    source = SYNC.format(options="", body="print('printed'); sys.stdout.write('written'); return 1")
    seen = spawn([script(), "Done."], tools=source)
    assert (seen.code, seen.out) == (0, "Done.\n")
    assert "printed" in seen.err
    assert "written" in seen.err


def test_what_a_tool_prints_is_no_event(ask, script):
    seen = ask([script(), "Done."], "--json", tools=SYNC.format(options="", body="print('printed'); return 1"))
    assert (seen.code, seen.err) == (0, "printed\n")
    assert [decode_event(line) for line in seen.out.splitlines()][-1].state == "completed"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("{", "callboard: arguments: not JSON: "),
        ("[1]", "callboard: arguments: not a JSON object; "),
        ("[" * 100_000, "callboard: arguments: not JSON: "),
        ('{"x": 1}', "Error: ArgValidationError: x"),
    ],
)
def test_a_call_by_hand_with_wrong_arguments(see, write, arguments, line):
    seen = see("tools", "call", "act", arguments, "--tools", write(SYNC.format(options="", body="return 1")))
    assert (seen.code, seen.out) == (1, "")
    assert seen.err.startswith(line)
