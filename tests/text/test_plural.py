"""Numbers with their nouns."""

from tests.tables import table

from callboard.text.plural import format_count


@table(
    ("number", "noun", "text"),
    [
        (0, "call", "0 calls"),
        (1, "entry", "1 entry"),
        (2, "more entry", "2 more entries"),
        (1200, "call", "1,200 calls"),
    ],
)
def test_a_noun_agrees_with_its_number(number, noun, text):
    assert format_count(number, noun) == text
