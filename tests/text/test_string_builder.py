"""A text that grows."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.text.string_builder import Pieces

TEXTS = st.lists(st.text(st.characters(exclude_categories=[])))


@given(TEXTS, TEXTS)
def test_it_is_what_was_appended(first, then):
    pieces = Pieces()
    for text in first:
        pieces.append(text)
    begin = len(pieces)
    for text in then:
        pieces.append(text)
    assert pieces.joined() == "".join(first + then)
    assert pieces.joined(begin) == "".join(then)
    assert bool(pieces) == bool(pieces.joined())
