import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import InvocationEnded, TextPiece, ToolDeclaration
from callboard.dialects import Parser, parse

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
names = st.sampled_from(["name", "tool", "function", "tool_calls", "arguments", "type", "args"])
values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | texts | st.just("write"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | texts, inner, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(names | texts, values, max_size=4) | st.lists(values, max_size=3)
WRITE = ToolDeclaration("write", schema={"type": "object", "properties": {"path": {"type": "string"}}})


@given(records, st.booleans(), st.booleans())
def test_json_is_read_the_same_in_one_piece_and_by_characters(record, escaped, fenced):
    text = json.dumps(record, ensure_ascii=escaped)
    text = f"```json\n{text}\n```\n" if fenced else f"{text} <tool_call>\n"
    parser = Parser([WRITE])
    events = [event for char in text for event in parser.feed(char)] + parser.finish()
    assert merge(events) == merge(parse(text, [WRITE]))


@given(st.dictionaries(texts, texts, max_size=4))
def test_data_is_no_call_and_a_call_after_it_is_found(record):
    text = f'{json.dumps(record)}\n{{"name": "write", "arguments": {{"path": "a"}}}}'
    events = parse(text, [WRITE])
    assert [event.arguments for event in events if isinstance(event, InvocationEnded)] == [{"path": "a"}]


@table(
    "record", ["[" + "\n" * 65 + '{"a": 1},\n%s]', '{"' + r"\ud83d\ude00" * 25 + '": [\n%s]}'], ids=["blanks", "key"]
)
def test_a_call_is_found_in_json_that_the_reader_of_calls_does_not_follow(record):
    events = parse(record % '{"name": "write", "arguments": {"path": "a"}}', [WRITE])
    assert [event.arguments for event in events if isinstance(event, InvocationEnded)] == [{"path": "a"}]


def merge(events):
    """The text and the other events, with text in one piece between them."""
    merged = []
    for event in events:
        if isinstance(event, TextPiece) and merged and isinstance(merged[-1], str):
            merged[-1] += event.text
        else:
            merged.append(event.text if isinstance(event, TextPiece) else event)
    return merged
