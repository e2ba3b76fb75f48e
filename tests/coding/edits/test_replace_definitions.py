import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.edits.replace_definitions import (
    cut_broken_end,
    list_definitions,
    remove_tests,
    replace_definitions,
)
from callboard.coding.edits.result import EditRefused
from callboard.coding.outlines import find_syntax_error

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
    changed, names = replace_definitions(text, code, path)
    assert not gone or gone not in changed
    assert there in changed
    assert names
    again, _ = replace_definitions(changed, code, path)
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
        replace_definitions(PYTHON, code, "a.py")


@pytest.mark.parametrize(
    ("path", "code", "refused"),
    [
        ("a.py", "import os\nfrom b import c\n", True),
        ("a/__init__.py", "from b import c\n", False),
        ("a.py", "import os\n\nprint(os.name)\n", False),
        ("a.py", "", False),
        ("index.js", "export { a } from './a.js';\n", False),
    ],
)
def test_a_new_file_is_more_than_imports(path, code, refused):
    if refused:
        with pytest.raises(EditRefused, match="nothing but imports"):
            replace_definitions("", code, path)
    else:
        assert replace_definitions("", code, path)[0].strip() == code.strip()


def test_a_file_of_no_known_language_is_not_put_together():
    with pytest.raises(EditRefused, match="known language"):
        replace_definitions("a\n", "b\n", "a.txt")


def test_names():
    assert list_definitions(PYTHON, "a.py") == ("SIZE", "Basket", "pages", "other")


names = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@given(st.dictionaries(names, st.integers(0, 9), min_size=1), st.dictionaries(names, st.integers(10, 19), min_size=1))
def test_what_the_code_does_not_name_stays(before, after):
    def written(functions):
        return "\n\n".join(f"def {name}():\n    return {value}\n" for name, value in functions.items())

    changed, put = replace_definitions(written(before), written(after), "a.py")
    found = {}
    exec(changed, found)
    assert {name: found[name]() for name in {**before, **after}} == {**before, **after}
    assert put == (*after,)


TESTS = {
    "a.py": "import pytest\n\n\n@pytest.mark.slow\ndef test_a():\n    pass\n\n\ndef test_ab():\n    pass\n\n\n"
    "class TestC:\n    def test_d(self):\n        pass\n\n    def test_e(self):\n        pass\n",
    "a_test.go": "package a\n\nfunc TestA(t *testing.T) {\n}\n\nfunc TestAb(t *testing.T) {\n}\n",
    "a.test.js": "test('adds one', () => {\n});\n\ntest('adds', () => {\n});\n",
}


@pytest.mark.parametrize(
    ("path", "failed", "left"),
    [
        ("a.py", [], "test_a test_ab test_d test_e"),
        ("a.py", ["test_a"], "test_ab test_d test_e"),
        ("a.py", ["test_ab[1-x.test_a]"], "test_a test_d test_e"),
        ("a.py", ["tests/a.py::TestC::test_d", "TestC.test_d"], "test_a test_ab test_e"),
        ("a.py", ["TestC.test_d", "TestC.test_e"], "test_a test_ab"),
        ("a.py", ["test_other"], "test_a test_ab test_d test_e"),
        ("a_test.go", ["TestA/sub"], "TestAb"),
        ("a_test.go", ["TestAb"], "TestA"),
        ("a.test.js", ["group > adds one"], "adds"),
        ("a.test.js", ["adds"], "adds one"),
    ],
)
def test_tests_that_failed_are_taken_out(path, failed, left):
    code = remove_tests(TESTS[path], path, failed)
    found = re.findall(r"def (\w+)|func (\w+)|test\('(.*?)'", code)
    assert ["".join(each) for each in found] == re.findall(r"adds one|\w+", left)


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("a.py", "\n\ndef test_f():\n    assert [1,\n"),
        ("a.py", "\n\n@pytest.mark.parametrize(\n"),
        ("a.py", "\n    def test_f(self):\n        assert [1,\n"),
        ("a_test.go", "\n// TestB tests b.\nfunc TestB(t *testing.T) {\n\tif a {\n"),
        ("a.test.js", "\ntest('subtracts', () => {\n  if (\n"),
    ],
)
def test_a_broken_end_is_cut(path, end):
    whole = cut_broken_end(TESTS[path] + end, path)
    assert whole.startswith(TESTS[path])
    assert find_syntax_error(whole, path) is None
    assert cut_broken_end(whole, path) == whole


def test_what_is_broken_from_its_beginning_stays():
    assert cut_broken_end("def f(:\n", "a.py") == "def f(:\n"
