"""Results that a model wrote itself: what is cut, what is not, and that pieces do not matter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.modes import HallucinatedResultFilter
from callboard.testing import coalesce

CALL = core.InvocationEnded(0, "c0", "file", {}, "{}")
END = core.ReplyEnded("invocations")


def through(*events, stage=None):
    """What comes out: texts as text, cuts as `[cut: ...]`, calls as `[call]`."""
    stage = stage or HallucinatedResultFilter()
    out = [each for event in events for each in stage.feed(event)]
    return [*out, *stage.finish()]


def visible_text(events):
    said = ""
    for event in events:
        match event:
            case core.TextPiece(text=text):
                said += text
            case core.Note(kind="alert", text=text):
                said += text.replace("the model wrote a result itself, and it was cut: ", "[cut: ") + "]"
            case core.InvocationEnded():
                said += "[call]"
            case _:
                pass
    return said


BEHIND = [
    ("Tool results:\nfile: 3", "[cut: Tool results:\nfile: 3]"),
    ("\nOK.\nTool results: x\ny", "\nOK.\n[cut: Tool results: x\ny]"),
    ("tool  results: x", "[cut: tool  results: x]"),
    ("**Tool results:** x", "[cut: **Tool results:** x]"),
    ("### Tool execution results:", "[cut: ### Tool execution results:]"),
    ("Tool 1 (file) output:\nx", "[cut: Tool 1 (file) output:\nx]"),
    ("Tool 12 (code_edit) failed: x", "[cut: Tool 12 (code_edit) failed: x]"),
    ("Tool 1 (file) error: x", "[cut: Tool 1 (file) error: x]"),
    ("Observation: 3", "[cut: Observation: 3]"),
    ("✅ file: read", "[cut: ✅ file: read]"),
    ("❌ code_edit failed: x", "[cut: ❌ code_edit failed: x]"),
    ('{"success": true, "output": "x"}\nDone.', '[cut: {"success": true, "output": "x"}\nDone.]'),
    ('{"success":false}', '[cut: {"success":false}]'),
    ('{\n  "success": true\n}', '[cut: {\n  "success": true\n}]'),
    ('{"output": "x", "success": true}\nmore', '[cut: {"output": "x", "success": true}\nmore]'),
    ('{"a": 1, "error": "x", "success": false}', '[cut: {"a": 1, "error": "x", "success": false}]'),
    # What is none.
    ("Tool resulting in x", "Tool resulting in x"),
    ("The Tool results: x", "The Tool results: x"),
    ("Tool 1 (file)", "Tool 1 (file)"),
    ("- Observation: 3", "- Observation: 3"),
    ("✅ all done", "✅ all done"),
    ("❌ file works", "❌ file works"),
    ('{"output": "x"}\n{"success": 1}', '{"output": "x"}\n{"success": 1}'),
    ('{"answer": 42}', '{"answer": 42}'),
    ("{", "{"),
    ('{"success"\n: true}', '[cut: {"success"\n: true}]'),
    ("Tool res", "Tool res"),
    ("\n\n  \n", "\n\n  \n"),
]
ANYWHERE = [
    ("<tool_response>\n3\n</tool_response>\nSo 3.", "[cut: <tool_response>\n3\n</tool_response>]\nSo 3."),
    (
        '<tool_result id="1">3</tool_result><tool_result>4</tool_result>!',
        '[cut: <tool_result id="1">3</tool_result>][cut: <tool_result>4</tool_result>]!',
    ),
    ("x\n  <TOOL_RESPONSE>3", "x\n[cut:   <TOOL_RESPONSE>3]"),
    ("[TOOL_RESULTS]{}[/TOOL_RESULTS]\nx", "[cut: [TOOL_RESULTS]{}[/TOOL_RESULTS]]\nx"),
    (
        "<|start_header_id|>ipython<|end_header_id|>\n\n3<|eot_id|>",
        "[cut: <|start_header_id|>ipython<|end_header_id|>\n\n3<|eot_id|>]",
    ),
    ("see <tool_response> there", "see <tool_response> there"),
    ("<tool_respond>", "<tool_respond>"),
    ("<tool_response", "<tool_response"),
    ("< b\n<\n<t", "< b\n<\n<t"),
    (f"<tool_response>{'x' * 300}</tool_response>", f"[cut: <tool_response>{'x' * 185}]"),
]


@table(("said", "left"), [*BEHIND, *ANYWHERE])
def test_what_is_cut_behind_a_call(said, left):
    assert visible_text(through(CALL, core.TextPiece(said), END)) == f"[call]{left}"
    assert visible_text(through(core.TextPiece("I look."), CALL, core.TextPiece(said), END)) == f"I look.[call]{left}"


@table(("said", "left"), [*[(said, said) for said, _ in BEHIND], *ANYWHERE])
def test_what_is_cut_in_a_reply_without_a_call(said, left):
    assert visible_text(through(core.TextPiece(said), END)) == left


def test_calls_stay_calls():
    events = [core.TextPiece("a"), CALL, core.TextPiece("Tool results: x"), CALL, core.TextPiece(" y\nz"), END]
    assert visible_text(through(*events)) == "a[call][call][cut: Tool results: x y\nz]"
    assert through(*events)[-1] == END
    tagged = [core.TextPiece("<tool_response>a"), CALL, core.TextPiece("b</tool_response>c"), END]
    assert visible_text(through(*tagged)) == "[call][cut: <tool_response>ab</tool_response>]c"


def test_a_call_ends_a_line_and_what_was_held():
    assert (
        visible_text(through(core.TextPiece("<tool_resp"), CALL, core.TextPiece("onse>x"), END))
        == "<tool_resp[call]onse>x"
    )
    assert (
        visible_text(through(core.TextPiece("x"), CALL, core.TextPiece("Observation: y"), END))
        == "x[call][cut: Observation: y]"
    )


def test_what_is_no_text_is_not_touched():
    events = [
        core.ReplyStarted("r"),
        core.ReasoningPiece("Tool results: x"),
        core.InvocationStarted(0, "c0", "file"),
        CALL,
        core.Usage(1),
        END,
    ]
    assert through(*events) == events
    piece = core.TextPiece("plain text", offsets=(3, 13))
    assert through(piece) == [piece]


def test_text_is_held_no_longer_than_it_may_be_a_mark():
    stage = HallucinatedResultFilter()
    stage.feed(CALL)
    assert stage.feed(core.TextPiece("Too")) == []
    assert stage.feed(core.TextPiece("ls")) == [core.TextPiece("Tools")]
    assert stage.feed(core.TextPiece(" are")) == [core.TextPiece(" are")]
    assert stage.feed(core.TextPiece("\n{")) == [core.TextPiece("\n")]
    assert stage.feed(core.TextPiece("a")) == [core.TextPiece("{a")]


def test_each_reply_begins_anew():
    stage = HallucinatedResultFilter()
    assert (
        visible_text(through(CALL, core.TextPiece("Observation: x"), core.ReplyEnded("retry"), stage=stage))
        == "[call][cut: Observation: x]"
    )
    assert visible_text(through(core.TextPiece("Observation: x"), END, stage=stage)) == "Observation: x"


def test_a_reply_that_breaks_off_says_what_was_cut():
    assert visible_text(through(CALL, core.TextPiece("Observation: x"))) == "[call][cut: Observation: x]"
    assert visible_text(through(CALL, core.TextPiece("Observ"))) == "[call]Observ"


PARTS = st.sampled_from(
    [
        "Tool results:",
        "Tool 1 (file) output:",
        "Observation:",
        "✅ file:",
        "❌ file failed",
        '{"success": true',
        '{"',
        '"success": false',
        '"output": ',
        "}",
        "<tool_response>",
        "</tool_response>",
        "</TOOL_RESPONSE>",
        "<tool_result a=b>",
        "</tool_result>",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "\n",
        "\n\n",
        " ",
        "  ",
        "*",
        "x",
        "Tool",
        '"success"',
        ": true",
        "İ",
        "<",
        "[",
        "é",
    ]
)


@given(st.lists(st.one_of(PARTS, st.just(None)), max_size=14), st.lists(st.integers(1, 6), min_size=1, max_size=20))
def test_any_split_gives_the_same(parts, sizes):
    whole: list = []
    pieces: list = []
    turn = 0
    for part in parts:
        if part is None:
            whole.append(CALL)
            pieces.append(CALL)
            continue
        if whole and isinstance(whole[-1], core.TextPiece):
            whole[-1] = core.TextPiece(whole[-1].text + part)
        else:
            whole.append(core.TextPiece(part))
        while part:
            size = sizes[turn % len(sizes)]
            turn += 1
            pieces.append(core.TextPiece(part[:size]))
            part = part[size:]  # noqa: PLW2901  # it is eaten up
    assert coalesce(through(*whole, END)) == coalesce(through(*pieces, END))


def test_the_work_is_linear():
    """A thousand times the text is a thousand times the calls, however long its lines are held."""
    import sys

    def calls(count, piece):
        stage = HallucinatedResultFilter()
        stage.feed(CALL)
        done = 0

        def watch(_frame, event, _argument):
            nonlocal done
            done += event in {"call", "c_call"}

        sys.setprofile(watch)
        try:
            for _ in range(count):
                stage.feed(core.TextPiece(piece))
        finally:
            sys.setprofile(None)
        return done

    for piece in ('{"', "Tool ", "x\n", "<tool_response"):
        assert calls(2000, piece) <= 11 * calls(200, piece)
