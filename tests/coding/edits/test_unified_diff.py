from __future__ import annotations

import difflib
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.apply_patch import parse_unified_diff
from callboard.coding.edits.hunks import apply_hunks
from callboard.coding.edits.text_edits import EditRefused, split_lines

OLD = "one\ntwo\nthree\nfour\nfive\n"
NEW = "one\ntwo\n3\nfour\nfive\n"


@table(
    "diff",
    [
        pytest.param("--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n two\n-three\n+3\n four\n", id="right"),
        pytest.param("--- f\n+++ f\n@@ -2,3 +2,3 @@\n two\n-three\n+3\n four\n", id="no prefixes"),
        pytest.param("--- a/f\n+++ f\n@@ -2,3 +2,3 @@\n two\n-three\n+3\n four\n", id="one prefix"),
        pytest.param("--- a/f\t2026-01-01\n+++ b/f\t2026-01-01\n@@ -3 +3 @@\n-three\n+3\n", id="times"),
        pytest.param("--- a/f\n+++ b/f\n@@ -200,30 +2,1 @@\n two\n-three\n+3\n four\n", id="wrong numbers"),
        pytest.param("--- a/f\n+++ b/f\n@@\n two\n-three\n+3\n", id="no numbers"),
        pytest.param("--- a/f\n+++ b/f\n@@ ... @@\n-three\n+3", id="dots, and no last line end"),
        pytest.param("@@ -3 +3 @@\n-three\n+3\n", id="no file"),
        pytest.param("```diff\n--- a/f\n+++ b/f\n@@ -3 +3 @@\n-three\n+3\n```\n", id="fenced"),
        pytest.param("Here it is:\n--- a/f\n+++ b/f\n@@\n-three\n+3\n```\n", id="talk before, a fence behind"),
        pytest.param(
            "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -3 +3 @@ two\n-three\n+3\n", id="git"
        ),
        pytest.param("--- a/f\n+++ b/f\n@@ -3 +3 @@\n-three\n+3\n-- \n2.39.5\n\n", id="a mail"),
        pytest.param('--- "a/\\146"\n+++ "b/\\146"\n@@ -3 +3 @@\n-three\n+3\n', id="quoted"),
    ],
)
def test_what_models_write(diff):
    (patch,) = parse_unified_diff(diff, "f")
    assert (patch.kind, patch.path, patch.target) == ("update", "f", "")
    assert apply_hunks(OLD, patch.hunks).text == NEW


def test_a_blank_line_that_lost_its_space():
    (patch,) = parse_unified_diff("--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n a\n\n-b\n+c\n\n")
    assert apply_hunks("a\n\nb\n", patch.hunks).text == "a\n\nc\n"


def test_several_files():
    diff = (
        "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n"
        "diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+1\n+2\n"
        "\\ No newline at end of file\n"
        "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-three\n+3\n"
    )
    read = parse_unified_diff(diff)
    assert [(each.kind, each.path, each.target, each.content) for each in read] == [
        ("update", "x", "y", ""),
        ("delete", "old", "", ""),
        ("add", "new", "", "1\n2"),
        ("update", "f", "", ""),
    ]


@table(
    ("diff", "told"),
    [
        ("", "there is no hunk in the diff"),
        ("just talk", "there is no hunk in the diff"),
        ("@@ -1 +1 @@\n-a\n+b\n", "does not say which file it is about"),
        ("--- a/x\n+++ b/y\n@@\n-a\n+b\n", "the diff names two files, x and y; to move one"),
        ("--- a/x\n+++ b/x\n@@\n-a\nb\n", r"line 5 of the patch begins with none of ' ', '\+' and '-': 'b'"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 3\n", "the diff is of a binary file"),
    ],
)
def test_what_is_refused(diff, told):
    with pytest.raises(EditRefused, match=told):
        parse_unified_diff(diff)


@table(
    ("text", "diff", "told"),
    [
        (
            "a\nb\na\nb\n",
            "@@\n-b\n+c\n",
            "hunk 1 of 1: its lines are 2 times in the file, at lines 2, 4; add more lines",
        ),
        ("b\na\nb\n", "@@ -2 +2 @@\n-b\n+c\n", "its lines are 2 times"),
        ("a\n", "@@ -1 +1 @@\n-  a\n+b\n", "line 1 of the file differs in indentation only"),
        ("a\n", "@@ -9,0 +10 @@\n+b\n", "it puts lines in at 9, and the file has 1 lines"),
        ("a\n", "@@\n+b\n", "it does not say where its lines go"),
        ("a\nb\n", "@@ -1,2 +1 @@\n a\n-b\n@@ -2 +2 @@\n-b\n+c\n", "two hunks are about line 2; make them one"),
    ],
)
def test_what_has_no_place(text, diff, told):
    (patch,) = parse_unified_diff(diff, "f")
    with pytest.raises(EditRefused, match=told):
        apply_hunks(text, patch.hunks)


def test_hunks_in_any_order():
    (patch,) = parse_unified_diff("@@ -5 +5 @@\n-five\n+5\n@@ -1 +1 @@\n-one\n+1\n", "f")
    assert apply_hunks(OLD, patch.hunks).text == "1\ntwo\nthree\nfour\n5\n"


def test_the_nearest_of_equal_places():
    text = "x\n" * 50
    (patch,) = parse_unified_diff("@@ -20 +20 @@\n-x\n+y\n", "f")
    assert split_lines(apply_hunks(text, patch.hunks).text)[19] == "y"


NASTY = ["a", "b", "", "-- x", "++ y", "@@ -1 +1 @@", "--- a", "+++ b", " c", "\\ d", "diff --git a b", "```"]
LINES = st.lists(st.sampled_from(NASTY), max_size=12)


@given(LINES, LINES, st.integers(0, 3))
def test_what_difflib_writes_is_read_back(old, new, around):
    one, other = "".join(line + "\n" for line in old), "".join(line + "\n" for line in new)
    diff = "".join(difflib.unified_diff(one.splitlines(True), other.splitlines(True), "a/f", "b/f", n=around))
    if diff:
        (patch,) = parse_unified_diff(diff)
        assert apply_hunks(one, patch.hunks).text == other


@settings(max_examples=20, deadline=None)
@given(st.text("ab\n", max_size=10), st.text("ab\n", max_size=10))
def test_what_git_writes_is_read_back(tmp_path_factory, one, other):
    folder = tmp_path_factory.mktemp("git")
    (folder / "old").write_text(one, newline="")
    (folder / "new").write_text(other, newline="")
    ran = subprocess.run(
        ["git", "diff", "--no-index", "--no-color", "old", "new"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if "@@" in ran.stdout:
        (patch,) = parse_unified_diff(ran.stdout.replace("a/old", "a/f").replace("b/new", "b/f"))
        assert apply_hunks(one, patch.hunks).text == other


@given(st.text("-+@ \\ab\n*`", max_size=60))
def test_anything_is_read_or_refused(text):
    try:
        patches = parse_unified_diff(text, "f")
        for patch in patches:
            apply_hunks(OLD, patch.hunks)
    except EditRefused:
        pass
