import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.edits.change import EditRefused
from callboard.coding.edits.definitions import names_defined, put_definitions

pytest.importorskip("tree_sitter")

PYTHON = '''"""Baskets."""

import os

SIZE = 10


class Basket:
    """A basket."""

    def __init__(self, items=[]):
        self.items = items

    @property
    def total(self):
        return 1


# How many pages there are.
def pages(total):
    return total // SIZE + 1


def other():
    pass
'''
JAVASCRIPT = 'const a = 1;\n\nexport function f(x) {\n  return x;\n}\n\ntest("adds", () => {\n  f(1);\n});\n'
GO = 'package x\n\nimport "fmt"\n\ntype B struct{ n int }\n\n// Add adds.\nfunc (b *B) Add(n int) {\n\tb.n = n\n}\n'


@pytest.mark.parametrize(
    ("path", "text", "code", "gone", "there"),
    [
        (
            "a.py",
            PYTHON,
            "def pages(total):\n    return -(-total // SIZE)\n",
            "+ 1",
            "# How many pages there are.\ndef pages",
        ),
        ("a.py", PYTHON, "def new():\n    pass\n", "", "def other():\n    pass\n\n\ndef new():\n    pass\n"),
        ("a.py", PYTHON, "import math\n\ndef other():\n    return math.pi\n", "", "import os\nimport math\n\nSIZE"),
        ("a.py", PYTHON, "import os\n\nSIZE = 20\n", "SIZE = 10", "SIZE = 20\n"),
        (
            "a.py",
            PYTHON,
            "@property\ndef total(self):\n    return 2\n",
            "return 1",
            "    @property\n    def total(self):\n        return 2\n",
        ),
        (
            "a.py",
            PYTHON,
            "class Basket:\n    def __init__(self, items=None):\n        self.items = items or []\n",
            "items=[]",
            "        return 1\n",
        ),
        ("a.js", JAVASCRIPT, "export function f(x) {\n  return x + 1;\n}\n", "return x;", "x + 1"),
        ("a.js", JAVASCRIPT, 'test("adds", () => {\n  f(2);\n});\n', "f(1)", "f(2)"),
        ("a.js", JAVASCRIPT, 'test("takes away", () => {});\n', "", 'f(1);\n});\n\ntest("takes away", () => {});\n'),
        (
            "a.go",
            GO,
            "package x\n\nfunc (b *B) Add(n int) {\n\tb.n += n\n}\n",
            "b.n = n",
            "// Add adds.\nfunc (b *B) Add",
        ),
        ("a.py", "", "x = 1\n", "", "x = 1\n"),
    ],
)
def test_code_takes_the_place_of_what_it_defines(path, text, code, gone, there):
    changed, names = put_definitions(text, code, path)
    assert not gone or gone not in changed
    assert there in changed
    assert names
    again, _ = put_definitions(changed, code, path)
    assert again == changed


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def pages(total):\n    # ... existing code ...\n", "leaves something out"),
        ("class Basket:\n    # rest of the class\n    pass\n", "leaves something out"),
        ("print(1)\n", "defines nothing"),
        ("", "defines nothing"),
        ("def pages(total:\n    return 1\n", "syntax error"),
    ],
)
def test_code_that_cannot_be_put_is_refused(code, told):
    with pytest.raises(EditRefused, match=told):
        put_definitions(PYTHON, code, "a.py")


def test_a_file_of_no_known_language_is_not_put_together():
    with pytest.raises(EditRefused, match="known language"):
        put_definitions("a\n", "b\n", "a.txt")


def test_names():
    assert names_defined(PYTHON, "a.py") == ("SIZE", "Basket", "pages", "other")


names = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@given(st.dictionaries(names, st.integers(0, 9), min_size=1), st.dictionaries(names, st.integers(10, 19), min_size=1))
def test_what_the_code_does_not_name_stays(before, after):
    def written(functions):
        return "\n\n".join(f"def {name}():\n    return {value}\n" for name, value in functions.items())

    changed, put = put_definitions(written(before), written(after), "a.py")
    found = {}
    exec(changed, found)
    assert {name: found[name]() for name in {**before, **after}} == {**before, **after}
    assert put == (*after,)
