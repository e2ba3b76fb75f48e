import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.control_tokens import ControlTokens, Unescaper, map_texts

TOKENS = ["<|im_end|>", "]~b]", "<s>", "<｜User｜>", "<unused{n}>", '<|"|>', "<|start|>"]
CONTROL = ControlTokens(TOKENS, ["<tool_call>"])
PIECES = [*TOKENS[:4], "<tool_call>", "<", "|", "im_end", ">", "]", "~b", "<unused", "1", "23", "x", '"']
LOOK_ALIKES = ["\u2060", "\u200b", "\uff1c", "\uff5c", "\ufb06", "art", "\\", "u003c", "\\u2060", "\\u003c", "|\\u003e"]
texts = st.lists(st.sampled_from([*PIECES, *LOOK_ALIKES]), max_size=12).map("".join) | st.text()


@given(texts, st.booleans())
def test_escaped_text_is_restored(text, everything):
    assert CONTROL.unescape(CONTROL.escape(text, everything=everything)) == text


@given(texts, st.booleans(), st.booleans())
def test_what_is_escaped_is_restored_in_json_however_it_is_encoded(text, ascii_only, escapes_brackets):
    """As Go does, whose JSON escapes angle brackets."""
    encoded = json.dumps(CONTROL.escape(text), ensure_ascii=ascii_only)
    if escapes_brackets:
        encoded = encoded.replace("<", "\\u003c").replace(">", "\\u003E")
    assert json.loads(CONTROL.unescape(encoded, in_json=True)) == text


@given(texts)
def test_no_control_token_is_in_what_was_escaped(text):
    escaped = CONTROL.escape(text)
    assert not any(token in escaped for token in ("<|im_end|>", "]~b]", "<s>", "<｜User｜>", "<|User|>", "<tool_call>"))


@given(texts, st.booleans(), st.integers(1, 5))
def test_any_split_is_restored_alike(text, in_json, size):
    undoing = Unescaper(CONTROL, in_json=in_json)
    pieces = [undoing.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, undoing.finish()]) == CONTROL.unescape(text, in_json=in_json)


@given(st.lists(texts, max_size=4))
def test_texts_that_a_template_joins_hold_no_token_together(parts):
    assert "".join(CONTROL.escape_all(parts)) == CONTROL.escape("".join(parts))


def test_a_number_is_any_number():
    assert CONTROL.escape("<unused1> <unused204>") == "<\u2060unused1> <\u2060unused204>"


def test_markup_stays_where_only_turns_are_escaped():
    assert CONTROL.escape("<tool_call><s>", everything=False) == "<tool_call><\u2060s>"


@table("invisible", "\u200b\u200c\u200d\u2060\ufeff")
def test_another_invisible_character_is_taken_for_the_joiner(invisible):
    assert CONTROL.unescape(f"<{invisible}s>") == "<s>"


def test_what_is_no_token_is_given_at_once():
    undoing = Unescaper(CONTROL)
    assert undoing.feed("a < b\u200bc <") == "a < b\u200bc <"
    assert undoing.feed("\u2060|im") == ""
    assert undoing.feed("_begin") == "\u2060|im_begin"


@table("depth", [10, 900, 50_000])
def test_a_value_may_be_nested_as_deep_as_it_likes(depth):
    """A model, or a client, decides how deep the arguments of a call are."""
    value: list | str = "x"
    for _ in range(depth):
        value = [value]
    assert map_texts(value, lambda text: text) is value
    changed = map_texts(value, str.upper)
    for _ in range(depth):
        (changed,) = changed
    assert changed == "X"
