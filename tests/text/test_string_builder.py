"""A text that grows."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.text.string_builder import StringBuilder

TEXTS = st.lists(st.text(st.characters(exclude_categories=[])))


@given(TEXTS, TEXTS)
def test_it_is_what_was_appended(first, then):
    pieces = StringBuilder()
    for text in first:
        pieces.append(text)
    begin = len(pieces)
    for text in then:
        pieces.append(text)
    assert pieces.build() == "".join(first + then)
    assert pieces.build(begin) == "".join(then)
    assert bool(pieces) == bool(pieces.build())
