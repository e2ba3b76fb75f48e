"""Tests that fail are taken out, as little of them as possible."""

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.remove_tests import cut_after_assertion, remove_failures, remove_tests
from callboard.coding.outlines import find_syntax_error

TESTS = {
    "a.py": "import pytest\n\n\n@pytest.mark.slow\ndef test_a():\n    pass\n\n\ndef test_ab():\n    pass\n\n\n"
    "class TestC:\n    def test_d(self):\n        pass\n\n    def test_e(self):\n        pass\n",
    "a_test.go": "package a\n\nfunc TestA(t *testing.T) {\n}\n\nfunc TestAb(t *testing.T) {\n}\n",
    "a.test.js": "test('adds one', () => {\n});\n\ntest('adds', () => {\n});\n",
}


@table(
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


PYTHON = "def test_a():\n    assert f(1) == 1\n    assert f(2) == 3\n\n\ndef test_b():\n    assert f(2) == 3\n"
SCRIPT = "test('adds', () => {\n  assert.equal(add(1, 2), 3);\n  assert.equal(add(1, 3), 3);\n});\n"
GO = """package a

func TestAdd(t *testing.T) {
	tests := []struct {
		name string
		want []int
	}{
		{name: "two numbers", want: []int{3}},
		{
			name: "no number",
			want: []int{0},
		},
	}
	rows := map[string][]int{"one number": {1}, "many": {2, 3}}
}
"""


@table(
    ("path", "code", "failed", "left_out", "removed"),
    [
        ("a.py", PYTHON, {"test_a": "  assert f(2) == 3"}, "    assert f(2) == 3\n\n\n", "test_a: assert f(2) == 3"),
        ("a.py", PYTHON, {"test_b": "assert f(2) == 3"}, "\n\n\ndef test_b():\n    assert f(2) == 3", "test_b"),
        ("a.py", PYTHON, {"test_b": ""}, "\n\n\ndef test_b():\n    assert f(2) == 3", "test_b"),
        (
            "a.test.js",
            SCRIPT,
            {"adds": "assert.equal(add(1, 3), 3);"},
            "  assert.equal(add(1, 3), 3);\n",
            "adds: assert.equal(add(1, 3), 3);",
        ),
        (
            "a_test.go",
            GO,
            {"TestAdd/two_numbers": "t.Errorf()"},
            '\t\t{name: "two numbers", want: []int{3}},\n',
            "TestAdd/two_numbers",
        ),
        (
            "a_test.go",
            GO,
            {"TestAdd/no_number": ""},
            '\t\t{\n\t\t\tname: "no number",\n\t\t\twant: []int{0},\n\t\t},\n',
            "TestAdd/no_number",
        ),
        ("a_test.go", GO, {"TestAdd/one_number": ""}, '"one number": {1}, ', "TestAdd/one_number"),
    ],
)
def test_as_little_as_possible_is_taken_out(path, code, failed, left_out, removed):
    remaining, parts = remove_failures(code, path, failed)
    assert left_out in code
    assert "".join(remaining.split()) == "".join(code.replace(left_out, "", 1).split())
    assert parts == (removed,)


def test_a_test_whose_assertions_all_fail_is_taken_out():
    code = PYTHON
    for _ in range(2):
        code, _ = remove_failures(
            code, "a.py", {"test_a": "assert f(2) == 3" if "f(2) == 3\n\n\ndef" in code else "assert f(1) == 1"}
        )
    assert "test_a" not in code
    assert "test_b" in code


NAMES = st.sampled_from(
    ["test_a", "test_b", "TestAdd/two_numbers", "TestAdd/no_number", "TestAdd/many", "adds", "x/{", "x/ "]
)
LINES = st.sampled_from(["", "assert f(2) == 3", "assert f(1) == 1", "assert.equal(add(1, 3), 3);", "assert ("])


@given(st.sampled_from([("a.py", PYTHON), ("a.test.js", SCRIPT), ("a_test.go", GO)]), st.dictionaries(NAMES, LINES))
def test_what_remains_can_be_parsed_and_is_part_of_the_code(file, failed):
    path, code = file
    remaining, _ = remove_failures(code, path, failed)
    assert find_syntax_error(remaining, path) is None
    characters = iter(code)
    assert all(each in characters for each in remaining.strip())


@table(
    ("path", "cut", "whole"),
    [
        ("a.py", "def test_a():\n    assert f(1)\n    assert f(2", "def test_a():\n    assert f(1)\n"),
        ("a.py", "def test_a():\n    assert f(1)\n    x = [\n        1,", "def test_a():\n    assert f(1)\n"),
        ("a.py", "def test_a():\n    x = 1", ""),
        ("a.test.js", "test('a', () => {\n  assert(f(1));\n  asser", "test('a', () => {\n  assert(f(1));\n});\n"),
        (
            "a.test.js",
            "describe('a', () => {\n  it('b', () => {\n    assert(f(1));\n    asser",
            "describe('a', () => {\n  it('b', () => {\n    assert(f(1));\n  });\n});\n",
        ),
        ("a.test.js", "test('a', () => {\n  assert.equal(f(1), {\n    a: 1", ""),
    ],
)
def test_a_cut_test_ends_after_its_last_whole_assertion(path, cut, whole):
    assert cut_after_assertion(cut, path) == whole


@given(st.sampled_from([("a.py", PYTHON), ("a.test.js", SCRIPT)]), st.data())
def test_wherever_a_reply_is_cut_the_rest_can_be_parsed(file, data):
    path, code = file
    end = data.draw(st.integers(0, len(code)))
    whole = cut_after_assertion(code[:end], path)
    assert find_syntax_error(whole, path) is None
    assert whole.count("assert") <= code[:end].count("assert")
