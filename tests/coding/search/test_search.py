from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.search.search import parse_query


@table("pattern", ["foo(", "[", "*a", "a{2,1}", "(?P<a>.)(?P<a>.)", "\\"])
def test_what_is_no_expression_is_a_text(pattern):
    query = parse_query(pattern)
    assert query.fixed
    assert re.search(query.source, f"x{pattern}y")


@table("pattern", ["a", "a+", "[[a]", "a.b", "interface{}"])
def test_expressions(pattern):
    assert not parse_query(pattern).fixed


@given(st.text("ab.*(\\ =", max_size=5), st.text("ab.*(\\ =", max_size=10), st.booleans())
def test_the_text_is_in_what_matches(pattern, line, ignore_case):
    query = parse_query(pattern, ignore_case=ignore_case)
    if re.search(query.source, line, re.IGNORECASE if ignore_case else 0):
        assert query.text in line
