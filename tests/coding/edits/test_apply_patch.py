from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.apply_patch import parse_apply_patch, parse_patch
from callboard.coding.edits.hunks import apply_hunks
from callboard.coding.edits.text_edits import EditRefused

OLD = """class A:
    def run(self):
        return 1


class B:
    def run(self):
        return 1
"""


def wrapped(body):
    return f"*** Begin Patch\n{body}\n*** End Patch"


@table(
    ("body", "line", "made"),
    [
        pytest.param(
            "@@ class B:\n     def run(self):\n-        return 1\n+        return 2", 8, "        return 2", id="head"
        ),
        pytest.param(
            "@@ class B:\n@@     def run(self):\n-        return 1\n+        return 2",
            8,
            "        return 2",
            id="heads",
        ),
        pytest.param("-class B:\n+class C:", 6, "class C:", id="no @@"),
        pytest.param(
            "@@\n-        return 1\n+        return 3\n*** End of File", 8, "        return 3", id="the end of the file"
        ),
        pytest.param("@@ -8,1 +8,1 @@\n-        return 1\n+        return 4", 8, "        return 4", id="numbers"),
        pytest.param(
            "@@ class B: @@\n     def run(self):\n-        return 1\n+        return 2",
            8,
            "        return 2",
            id="closed",
        ),
        pytest.param("@@ class A:\n+    x = 1", 2, "    x = 1", id="below a head"),
    ],
)
def test_hunks(body, line, made):
    (patch,) = parse_apply_patch(wrapped(f"*** Update File: a.py\n{body}"))
    assert apply_hunks(OLD, patch.hunks).text.splitlines()[line - 1] == made


def test_files():
    read = parse_patch(
        "apply_patch <<'EOF'\n"
        + wrapped(
            "*** Add File: new.py\n+a\n+\n+b\n*** Delete File: old.py\n"
            "*** Update File: src/a.py\n*** Move to: src/b.py\n@@\n-x\n+y"
        )
        + "\nEOF"
    )
    assert [(each.kind, each.path, each.target, each.content) for each in read] == [
        ("add", "new.py", "", "a\n\nb\n"),
        ("delete", "old.py", "", ""),
        ("update", "src/a.py", "src/b.py", ""),
    ]


@table(
    ("text", "told"),
    [
        ("nothing", "no line '\\*\\*\\* Begin Patch'"),
        (wrapped(""), "the patch is about no file"),
        (wrapped("-a\n+b"), "line 2 of the patch stands in no file: '-a'"),
        (wrapped("*** Add File: a\nx"), "line 3 of the patch is in a new file, and does not begin with '\\+': 'x'"),
        (wrapped("*** Delete File: a\n-x"), "a is deleted, and the patch says more of it"),
        (wrapped("*** Update File: a\n@@\nx"), "line 4 of the patch begins with none of"),
    ],
)
def test_what_is_refused(text, told):
    with pytest.raises(EditRefused, match=told):
        parse_apply_patch(text)


@table(
    ("body", "told"),
    [
        ("@@\n-        return 1\n+        return 2", "its lines are 2 times in the file, at lines 3, 8"),
        ("@@ class C:\n-        return 1\n+        return 2", "the line 'class C:' above it is not in the file"),
        ("@@\n-    return 1\n+    return 2", "differs in indentation only"),
    ],
)
def test_what_has_no_place(body, told):
    (patch,) = parse_apply_patch(wrapped(f"*** Update File: a.py\n{body}"))
    with pytest.raises(EditRefused, match=told):
        apply_hunks(OLD, patch.hunks)


def test_an_unfinished_patch_is_read_to_its_end():
    (patch,) = parse_apply_patch("*** Begin Patch\n*** Update File: a\n-class A:\n+class Z:\n")
    assert apply_hunks(OLD, patch.hunks).text.startswith("class Z:\n")


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "*** x", "@@", "-"]), max_size=12)


@given(LINES, LINES)
def test_what_was_changed_is_read_back(old, new):
    """Of each change one hunk, with all of the file around it."""
    body = [line[:1] + line[2:] for line in difflib.ndiff(old, new) if line[0] != "?"]
    one, other = "".join(line + "\n" for line in old), "".join(line + "\n" for line in new)
    if any(line[0] != " " for line in body) and old:
        (patch,) = parse_apply_patch(wrapped("\n".join(["*** Update File: f", "@@", *body])))
        assert apply_hunks(one, patch.hunks).text == other


@given(st.text("-+@ *ab\n", max_size=60))
def test_anything_is_read_or_refused(text):
    for whole in (text, wrapped(text), wrapped(f"*** Update File: a\n{text}")):
        try:
            for patch in parse_apply_patch(whole):
                apply_hunks(OLD, patch.hunks)
        except EditRefused:
            pass
