from __future__ import annotations

import io
import json
import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.search import Glob, parse_query
from callboard.coding.search_worker import MAX_LINES, serve


@table(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "b/c.py", ".py"], ["a.pyc", "a.py/b"]),
        ("*", ["a", "b/c"], []),
        ("test_?.go", ["x/test_a.go"], ["test_ab.go", "test_.go"]),
        ("[ab]*", ["ax", "x/b"], ["cx"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "srcs/a.py"]),
        ("**/*.py", ["a.py", "b/c/a.py"], ["a.go"]),
        ("src/**", ["src/a", "src/b/c"], ["srcs/a"]),
        ("./src/a", ["src/a"], ["a"]),
        ("*.{js,ts}", ["a.js", "b/a.ts"], ["a.tsx"]),
        ("{a,b}/{c,d}.py", ["a/c.py", "b/d.py"], ["a/b.py"]),
        ("a{b", ["a{b"], ["ab"]),
        ("", [], ["a"]),
        ("*.PY", ["a.PY"], ["a.py"]),
    ],
)
def test_globs(pattern, yes, no):
    glob = Glob(pattern)
    assert [path for path in (*yes, *no) if glob.matches(path)] == yes


def test_what_could_take_forever_does_not():
    assert not Glob("*a" * 30 + "b").matches("a" * 200)
    assert not Glob("/".join(["**", "a"] * 50)).matches("/".join("a" * 49))
    assert not Glob("{a,b}" * 30).matches("c")


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


def answers(pattern, *texts, ignore_case=False):
    asked = json.dumps([pattern, ignore_case]).encode() + b"\n"
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        asked += len(data).to_bytes(8, "big") + data
    answered = io.BytesIO()
    serve(io.BytesIO(asked), answered)
    return [json.loads(line) for line in answered.getvalue().splitlines()]


def test_each_text_has_an_answer():
    assert answers("a$", "a\nb\nba\n", "", "x", "a") == [[1, 3], [], [], [1]]
    assert answers("A", "a", ignore_case=True) == [[1]]
    assert answers("^$", "\n\n", "a\n\n") == [[1, 2], [2]]


def test_numbers_are_bounded():
    assert len(answers("", "\n" * 5000)[0]) == MAX_LINES
