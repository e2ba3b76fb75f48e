"""Diffs, line by line."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.servers.board.entry_view import is_diff, split_diff

DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n"


def test_what_a_line_is():
    kinds = ["file", "file", "file", "hunk", "", "removed", "added"]
    assert [line.kind for line in split_diff(DIFF)] == kinds


def test_a_line_of_a_hunk_is_no_heading_of_a_file():
    lines = "@@ -1,2 +1 @@\n--- a comment of SQL\n-old\n+++ new\n--- a/y\n+++ b/y\n"
    assert [line.kind for line in split_diff(lines)] == ["hunk", "removed", "removed", "added", "file", "file"]


@table(
    ("text", "expected"),
    [
        (DIFF, True),
        (f"calc.py was changed:\n{DIFF}", True),
        ("*** Begin Patch\n*** Update File: x\n@@\n-a\n+b\n*** End Patch\n", True),
        ("- milk\n- bread\n+ eggs\n", False),
        ("--- a line\nand another\n", False),
        ("", False),
    ],
)
def test_what_is_a_diff(text, expected):
    assert is_diff(text) == expected


@given(st.text(alphabet="+-@ a\n\r\u2028"))
def test_nothing_is_lost(text):
    assert "\n".join([line.text for line in split_diff(text)]) == text.removesuffix("\n")
