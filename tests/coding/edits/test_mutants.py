"""Mutants of code: one small mistake each, in code that can still be parsed."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.mutants import describe_mutant, make_mutants
from callboard.coding.outlines import find_syntax_error

ALL = [range(1, 1000)]


def changes(code, path, lines=ALL, limit=50):
    return {each.new for each in make_mutants(code, path, lines, limit)}


@table(
    ("path", "line", "mutants"),
    [
        ("a.py", "x = a < b", {"x = a <= b"}),
        ("a.py", "x = a >= b", {"x = a > b"}),
        ("a.py", "x = a != b", {"x = a == b"}),
        ("a.py", "x = a + b", {"x = a - b"}),
        ("a.py", "x = a and b", {"x = a or b"}),
        ("a.py", "x = a not in b", {"x = a  in b"}),
        ("a.py", "x = True", {"x = False"}),
        ("a.py", "x = 9", {"x = 10"}),
        ("a.py", "x = a[:1]", {"x = a[:2]"}),
        ("a.py", "x = '1 < 2'  # 3 < 4", set()),
        ("a.py", 'x = """1 < 2"""', set()),
        ("a.py", "def f() -> A: return a", {"def f() -> A: return None"}),
        ("a.py", "if a: b", {"if not (a): b"}),
        ("a.py", "if a(b[:]): b", {"if not (a(b[:])): b"}),
        ("a.py", "f(*a)", set()),
        ("a.py", "x = f(a, g(b)[c:])", {"x = f(g(b)[c:], a)"}),
        ("a.py", "x = f(a, b, c) in (d, e)", set()),
        (
            "a.py",
            "x = f(a, b=c) or f(a, a) or f(a,)",
            {"x = f(a, b=c) and f(a, a) or f(a,)", "x = f(a, b=c) or f(a, a) and f(a,)"},
        ),
        ("a.js", "f(a, 'b, c');", {"f('b, c', a);"}),
        ("a.py", "def f(*a, b): c", set()),
        ("a.js", "const x = a === b && c;", {"const x = a !== b && c;", "const x = a === b || c;"}),
        ("a.js", "const f = (a) => `1 < ${2}`;", set()),
        ("a.js", "if (!a) b();", {"if (a) b();"}),
        ("a.js", "if (a(b)) c();", {"if (!(a(b))) c();"}),
        ("a.js", "function f() { return a;\n}", {"function f() { return null;"}),
        ("a.js", "return a;", {"return null;"}),
        (
            "a.go",
            "package a; func f() { if x := g(); ok { h() } }",
            {"package a; func f() { if x := g(); !(ok) { h() } }"},
        ),
        ("a.go", "package a; func f(c chan int) { c <- x }", set()),
        (
            "a.go",
            "package a; func (t T) f(a int, b string) { g(a, b) }",
            {"package a; func (t T) f(a int, b string) { g(b, a) }"},
        ),
        ("a.go", "package a; func f() int { return a }", set()),
        ("a.rb", "x = 1", set()),
    ],
)
def test_each_rule(path, line, mutants):
    assert changes(f"{line}\n", path) == mutants


def test_only_these_lines():
    code = "a = 1\nb = 2\nc = 3\n"
    assert changes(code, "a.py", [range(2, 3)]) == {"b = 3"}


def test_each_line_has_one_before_any_has_two_and_the_hardest_to_notice_come_first():
    code = "a = b < 1\nc = d + 1\n"
    assert [each.new for each in make_mutants(code, "a.py", ALL, 3)] == ["a = b <= 1", "c = d - 1", "a = b < 2"]


def test_a_mutant_says_what_it_changes():
    (mutant,) = make_mutants("if x:\n    y = a < b\n", "a.py", [range(2, 3)], 1)
    assert describe_mutant(mutant) == "line 2: `y = a < b` -> `y = a <= b`"


SOURCES = {
    "a.py": ["if a < 1:\n    b = 2\n", "def f(x):\n    return x or 3\n", 's = """1 <\n2"""\n', "while not a: pass\n"],
    "a.js": ["if (a < 1) { b(); }\n", "function f(x) { return x + 2; }\n", "const s = `1 <\n2`;\n", "/* 1 < 2 */\n"],
    "a.go": ["func f() bool { return a < 1 }\n", "func g() { if ok { h() } }\n", "var s = `1 <\n2`\n", "// 1 < 2\n"],
}


@given(st.sampled_from(sorted(SOURCES)), st.data())
@settings(max_examples=60)
def test_a_mutant_changes_one_line_and_can_be_parsed(path, data):
    parts = data.draw(st.lists(st.sampled_from(SOURCES[path]), max_size=4))
    code = ("package a\n" if path == "a.go" else "") + "".join(parts)
    lines = code.split("\n")
    made = make_mutants(code, path, ALL, 30)
    assert made == make_mutants(code, path, ALL, 30)
    assert len({each.text for each in made}) == len(made)
    for each in made:
        changed = each.text.split("\n")
        assert [number for number, (old, new) in enumerate(zip(lines, changed, strict=True), 1) if old != new] == [
            each.line
        ]
        assert find_syntax_error(each.text, path) is None


@given(st.text(alphabet="if a<1+\"'`#/*\n(){}:", max_size=60), st.sampled_from(sorted(SOURCES)))
def test_any_text_has_mutants_that_differ_from_it(code, path):
    assert all(each.text != code and each.old != each.new for each in make_mutants(code, path, ALL, 5))


def test_mutants_of_python_compile():
    for mutant in make_mutants("".join(SOURCES["a.py"]), "a.py", ALL, 50):
        ast.parse(mutant.text)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_no_more_than_asked_for(limit):
    assert len(make_mutants("a = 1\nb = 2\nc = 3\n", "a.py", ALL, limit)) == limit
