"""Arguments that a model gets wrong: it is told, a person sees a line, and the run goes on."""

from __future__ import annotations

import json
import sys

import pytest

DOUBLE = "@tool\ndef act(number: int) -> int:\n    return 2 * number\n"
ECHO = "@tool\ndef act(text: str) -> str:\n    return text\n"
PEAK = """
import atexit

@atexit.register
def peak():
    with open("/proc/self/status") as status:
        print(*[line.split()[1] for line in status if line.startswith("VmHWM")], file=sys.stderr)
"""
BIG = 10_000_000


@pytest.mark.parametrize(
    ("arguments", "called", "told"),
    [
        pytest.param("number=1", "number=1", "arguments: expected a JSON object, not 'number=1'", id="no JSON"),
        pytest.param("[1]", "[1]", "arguments: expected a JSON object, not '[1]'", id="an array"),
        pytest.param("null", "null", "arguments: expected a JSON object, not 'null'", id="null"),
        pytest.param('"{}"', '"{}"', "arguments: expected a JSON object, not '\"{}\"'", id="a string"),
        pytest.param('{"number": "one"}', 'number="one"', "number: expected a valid integer", id="a word"),
        pytest.param('{"number": 1.5}', "number=1.5", "number: expected a valid integer", id="a fraction"),
        pytest.param('{"number": {}}', "number={}", "number: expected a valid integer", id="an object"),
        pytest.param("{}", "", "number: missing", id="nothing"),
        pytest.param('{"numbr": 1}', "numbr=1", "number: missing; numbr: unknown argument", id="another name"),
        pytest.param("[" * 50_000, "[[[[", "arguments: expected a JSON object", id="too deep"),
        pytest.param("\x1b[2J\x00\n", "[2J", "arguments: expected a JSON object, not '\\x1b[2J", id="commands"),
        pytest.param('{"number": "\x1b]0;x\x07"}', "{", "arguments: expected a JSON object", id="a control"),
        pytest.param('{"number": "\\u001b[2J"}', 'number="\\u001b[2J"', "number: expected", id="an escape"),
    ],
)
def test_the_model_is_told_and_the_run_goes_on(ask, script, arguments, called, told):
    right = script("act", '{"number": 21}', "call_2")
    seen = ask([script("act", arguments), right, "It is 42."], tools=DOUBLE)
    assert (seen.code, seen.out, seen.paired) == (0, "It is 42.\n", True)
    wrong, refused, *rest = seen.lines
    assert rest == ["-> act(number=21)", "<- 42"]
    assert wrong.startswith(f"-> act({called}")
    assert refused.startswith(f"<- Error: {told}"[:100])
    assert max(map(len, seen.lines)) < 200
    assert all(line.isprintable() for line in seen.lines)
    # The transcript has every character that the model wrote.
    assert seen.canisters[1].raw == arguments


@pytest.mark.parametrize("arguments", ['{"number": 1', '{"number":' * 5_000], ids=["short", "deep"])
def test_arguments_that_do_not_end_are_a_call_that_was_cut(ask, script, arguments):
    seen = ask([script("act", arguments), script("act", '{"number": 21}', "call_2"), "It is 42."], tools=DOUBLE)
    assert (seen.code, seen.out, seen.paired) == (0, "It is 42.\n", True)
    cut, told, *rest = seen.lines
    assert (cut, rest) == ("-> act (incomplete: length)", ["-> act(number=21)", "<- 42"])
    assert told.startswith("<- Error: the call was cut at the reply's length limit")
    assert seen.canisters[1].raw == arguments
    seen.backend.assert_complete()


def test_a_tool_that_is_not_there(ask, script):
    seen = ask([script("\x1b[31mact" + "x" * 1000), "Done."], tools=DOUBLE)
    assert (seen.code, seen.out, seen.paired) == (0, "Done.\n", True)
    called, refused = seen.lines
    assert called.startswith("-> [31mactxxx")
    assert refused.startswith("<- Error: no tool '\\x1b[31mactxxx")
    assert max(map(len, seen.lines)) < 200


@pytest.mark.skipif(sys.platform != "linux", reason="Linux: reads the peak of memory from /proc")
@pytest.mark.parametrize(
    ("arguments", "called", "returned"),
    [
        pytest.param(json.dumps({"text": "x" * BIG}), '-> act(text="xxx', "<- xxx", id="right"),
        pytest.param(json.dumps({"number": "x" * BIG}), '-> act(number="xxx', "<- Error: ", id="wrong"),
        pytest.param("x" * BIG, "-> act(xxx", "<- Error: ", id="no JSON"),
    ],
)
def test_ten_megabytes_of_arguments(spawn, script, arguments, called, returned):
    seen = spawn([script("act", arguments), "Done."], tools=ECHO + PEAK)
    assert (seen.code, seen.out, seen.paired) == (0, "Done.\n", True)
    first, second, peak = seen.lines
    assert first.startswith(called)
    assert second.startswith(returned)
    assert max(len(first), len(second)) < 200
    assert seen.canisters[1].raw == arguments
    assert int(peak) < 500_000  # KB
