"""Replies of structured mode that are neither a call, an answer nor a thought."""

from tests.tables import table

from callboard.core import Note, ReplyEnded, ReplyStarted, TextPiece, ToolDeclaration
from callboard.dialects import ACTION
from callboard.modes import Watcher
from callboard.modes.text_calls import FormatCheck


def checked(text, size=1000, reason="stop"):
    stage = FormatCheck(Watcher(ACTION, [ToolDeclaration("f")], lambda index, _: f"c{index}"))
    pieces = [TextPiece(text[at : at + size]) for at in range(0, len(text), size)]
    fed = [ReplyStarted(), *pieces, ReplyEnded(reason)]
    return [out for event in fed for out in stage.feed(event)] + stage.finish()


def alerts(events):
    return [each.text for each in events if isinstance(each, Note) and each.kind == "alert"]


OTHERS = [
    '{"foo":1}',
    "[1]",
    '["a"]',
    "[]",
    "null",
    '{"action":null}',
    '{"action": {}}',
    '{"action": {"answer": null}}',
    '{"action": {"tool": "f", "arguments": 3}}',
    '{"foo": ',
    '```json\n{"foo": 1}\n```',
    '<think>Hm.</think>\n{"foo": 1}',
    ' {"foo": 1}\n',
]
OWN = [
    '{"action": {"answer": "It is 2."}}',
    '{"answer": "It is 2."}',
    '{"action": {"answer": "{\\"foo\\": 1}"}}',
    '{"action": {"answer": "[1]"}}',
    '{"action": {"answer": {"foo": 1}}}',
    '{"action": {"answer": 5}}',
    '{"action": {"scratchpad": "Hm."}}',
    '{"action": {"scratchpad": "Hm.", "answer": "[1]"}}',
    '{"action": {"tool": "f", "arguments": {}}}',
    '<think>Hm.</think>{"action": {"answer": "[1]"}}',
    "It is 2.",
    "5",
    "[1] is where it stands.",
    "It is {x}.",
    "",
]


@table("size", [1, 1000])
@table("text", OTHERS)
def test_json_of_another_shape_is_told_with_the_formats(text, size):
    *_, note, ended = checked(text, size)
    assert note.text.startswith("the reply has none of the formats that were asked for. Reply with one JSON object.")
    assert '{"action": {"answer": "the answer"}}' in note.text
    assert ended == ReplyEnded("stop")


@table("size", [1, 1000])
@table("text", OWN)
def test_calls_answers_thoughts_and_prose_are_not(text, size):
    assert alerts(checked(text, size)) == []


def test_a_reply_that_was_cut_is_not():
    assert alerts(checked('{"foo": 1', reason="length")) == []


def test_the_reply_after_a_retry_is_looked_at_by_itself():
    stage = FormatCheck(Watcher(ACTION, [ToolDeclaration("f")], lambda index, _: f"c{index}"))
    fed = [TextPiece('{"action": {"tool": "f", "arguments": {}}}'), ReplyEnded("retry"), TextPiece("[1]")]
    events = [out for event in (*fed, ReplyEnded("stop")) for out in stage.feed(event)]
    assert len(alerts(events)) == 1
