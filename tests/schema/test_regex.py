from __future__ import annotations

from tests.tables import table

from callboard.schema.regex import is_accepted, matches


@table(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        (r"^\d+$", "12", True),
        (r"^\p{L}+$", "été", True),
        ("(?=a)", "b", True),
    ],
)
def test_a_pattern_is_found_anywhere(pattern, text, found):
    assert matches(pattern, text) is found


@table("pattern", ["(?=a)", r"(a)\1", "(", "(?<!a)b", r"(\w{500}){500}"])
def test_what_is_not_linear_small_or_regular_is_refused(pattern):
    assert not is_accepted(pattern)
