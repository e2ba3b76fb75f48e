from __future__ import annotations

import os

import pytest

from callboard.coding.outlines import parser
from callboard.coding.tools.navigate import imports, list_directory, navigate, outline, tree


@pytest.fixture
def at(desk):
    made = desk(navigate, list_directory, tree, outline, imports)
    made.write(
        "src/main.py", "import os\nfrom sys import (\n    path,\n)\n\n\nclass A:\n    def run(self):\n        pass\n"
    )
    made.write("src/deep/er/x.go", "package x\n")
    made.write("readme.md", "")
    made.write(".env", "")
    made.write("node_modules/x/y", "")
    made.write(".git/HEAD", "")
    (made.root / "link").symlink_to("src")
    return made


def test_a_directory(at):
    assert at.call("navigate") == "link\nnode_modules/\nreadme.md\nsrc/"
    assert at.call("navigate", action="src") == "deep/\nmain.py"
    assert at.call("list_directory", path="src", extension="py") == "main.py"
    assert at.call("list_directory", directory="link", extension=".py") == "main.py"
    assert ".env\n.git/\n" in at.call("list_directory", show_hidden=True)
    (at.root / "empty").mkdir()
    assert at.call("list_directory", directory="empty") == "nothing is there"


@pytest.mark.parametrize("directory", ["..", "/etc", "out", "nothing", "readme.md"])
def test_what_is_no_directory_beneath(at, tmp_path, directory):
    (at.root / "out").symlink_to(tmp_path)
    for name in ("list_directory", "tree"):
        assert "Error: " in at.refused(name, directory=directory)


def test_a_tree(at):
    assert at.call("navigate", action="get_tree") == (
        "link\nnode_modules/ ...\nreadme.md\nsrc/\n  deep/\n    er/\n  main.py"
    )
    assert at.call("tree", max_depth=1) == "link\nnode_modules/ ...\nreadme.md\nsrc/"
    assert at.call("tree", directory="src/deep", max_depth=9) == "er/\n  x.go"


def test_a_large_tree_is_shown_from_the_top(at):
    for number in range(600):
        at.write(f"many/{number:03}/x", "")
    shown = at.call("tree").splitlines()
    assert len(shown) == 501
    assert shown[-1] == "... (limited to 500 results)"
    assert {"src/", "readme.md"} < {*shown}
    assert at.call("list_directory", directory="many").endswith("499/\n... (limited to 500 results)")


def test_odd_names(at):
    (at.root / "src" / "a\nb").write_text("")
    (at.root / "src" / os.fsdecode(b"\xff")).write_text("")
    assert at.call("list_directory", directory="src") == "a\\nb\ndeep/\nmain.py\n\\udcff"


def test_an_outline(at, monkeypatch):
    assert at.call("navigate", action="get_file_outline", path="src/main.py") == "7: [class] A\n8: [method] A.run"
    assert at.call("navigate", action="find_imports", path="src/main.py") == "1: import os\n2: from sys import ("
    monkeypatch.setattr(parser, "parse", lambda *_: None)
    assert "src/main.py could not be parsed (the extra `coding` brings the grammars)" in at.refused(
        "outline", path="src/main.py"
    )


def test_an_outline_of_nothing(at):
    at.write("empty.py", "")
    assert at.call("outline", path="empty.py") == "nothing is defined there"
    assert at.call("imports", path="empty.py") == "nothing is imported there"
    assert "readme.md is in none of the languages that are understood: python, go," in at.refused(
        "outline", path="readme.md"
    )
    assert "there is no file nothing.py" in at.refused("outline", path="nothing.py")
