import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.json_object import JsonObject, Token

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def members(pieces, enter=()):
    """The members as (key, raw value), and the last token with what follows it."""
    reader, found, raw, reading = JsonObject(), [], "", False
    rest = iter(pieces)
    for piece in rest:
        at = 0
        while True:
            begin = at
            token, at = reader.step(piece, at)
            if reading:
                raw += piece[begin:at]
            if token is Token.MORE:
                break
            if token is Token.BEGIN:
                reading, raw = True, ""
                if reader.key in enter and reader.opener == "{":
                    reader.enter()
                    reading, at = False, at + 1
            elif token is Token.END:
                found.append((reader.key, raw))
                reading = False
            elif token in (Token.DONE, Token.BROKEN):
                return found, token, piece[at:] + "".join(rest)
    return found, Token.MORE, ""


def cut(text, sizes):
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return [*pieces, text[at:]]


@given(st.dictionaries(st.text(max_size=9), json_values, max_size=4), st.lists(st.integers(1, 9)), st.booleans())
def test_however_an_object_is_cut_its_members_are_found(value, sizes, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)[1:] + " tail"
    found, token, rest = members(cut(text, sizes))
    assert token is Token.DONE
    assert {key: json.loads(raw) for key, raw in found} == value
    assert rest == " tail"


@table(
    ("text", "where"),
    [
        ("x", 0),
        ("'a':1}", 0),
        ('"a" 1}', 4),
        ('"a":x}', 4),
        ('"a":1 "b":2}', 6),
        ('"a":1,}', 6),
        ('"a":[}', 5),
        ('"a":{"b":]}', 9),
        ('"\\q":1}', 3),
        ('"' + "k" * 300 + '":1}', 257),
    ],
)
def test_what_cannot_stand_there_breaks_it(text, where):
    _, token, rest = members([text])
    assert token is Token.BROKEN
    assert rest == text[where:]


def test_the_members_of_an_entered_object_are_reported_as_well():
    found, token, _ = members(['"f":{"a":{"deep":1},"b":2},"c":3}'], enter={"f"})
    assert found == [("a", '{"deep":1}'), ("b", "2"), ("c", "3")]
    assert token is Token.DONE


def test_a_hundred_thousand_brackets_are_no_recursion():
    assert members(['"a":' + "[" * 100_000])[1] is Token.MORE
