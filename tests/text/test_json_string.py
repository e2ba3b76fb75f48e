import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.json_string import JsonString


def read(pieces):
    string = JsonString()
    return "".join([string.feed(piece) for piece in pieces]) + string.finish()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans(), st.integers(1, 13))
def test_however_a_string_is_cut_its_characters_are_the_same(text, ascii_only, size):
    raw = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    assert read([raw[at : at + size] for at in range(0, len(raw), size)]) == text


@table(
    ("raw", "text"),
    [
        ("a\nb\tc", "a\nb\tc"),
        (r"\ud83d", "�"),
        (r"\ud83dx", "�x"),
        (r"\u12", r"\u12"),
        ("\\", "\\"),
        (r"\q", r"\q"),
        ("\\" * 7, "\\" * 3 + "\\"),
    ],
)
def test_what_is_no_escape_is_kept(raw, text):
    assert read([raw]) == text
    assert read(list(raw)) == text


def test_characters_are_given_as_they_come():
    string = JsonString()
    assert string.feed("ab") == "ab"
    assert string.feed("c\\") == "c"
    assert string.held_length == 1
    assert string.feed("n") == "\n"
