from __future__ import annotations

import pytest

from callboard.coding.outlines import find_syntax_error, outline, tree_sitter_parsing
from callboard.coding.outlines.languages import find_language


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.py", "def f():\n    return 1\n", None),
        ("a.py", "def f():\n    return (1\n", 2),
        ("a.py", "x = 1\ndef f(:\n    pass\n", 2),
        ("a.go", "package a\n\nfunc f() {\n", 3),
        ("a.js", "const a = {\n", 1),
        ("a.md", "(", None),
        ("a.py", "", None),
    ],
)
def test_broken_lines(path, text, line):
    found = find_syntax_error(text, path)
    assert found == line or (line is not None and found is not None and found >= line)


def test_nobody_can_tell_without_a_grammar(monkeypatch):
    monkeypatch.setattr(outline, "parse", lambda *_: None)
    assert find_syntax_error("(", "a.py") is None


def test_a_text_that_takes_too_long(monkeypatch):
    monkeypatch.setattr(tree_sitter_parsing, "SECONDS", 0.0)
    assert tree_sitter_parsing.parse_tree("(" * 100_000, find_language("a.py")) is None
