from __future__ import annotations

from tests.tables import table

from callboard.coding.search.search import Glob


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
