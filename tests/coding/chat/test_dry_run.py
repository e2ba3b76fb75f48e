from __future__ import annotations

import asyncio
import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.chat.dry_run import dry_run_edit
from callboard.coding.tools import make_ensemble
from callboard.coding.workspace import changed_files
from callboard.coding.workspace.changed_files import diff_of, unified_diff
from callboard.coding.workspace.workspace import Workspace
from callboard.core import InvocationCanister
from callboard.execution import run_invoker

ACTIONS = (
    *("read_file", "get_lines", "write_file", "replace_in_file", "append_file", "delete_file"),
    *("edit_lines", "insert_lines", "delete_lines", "apply_patch", "bash", "run_tests", "git_commit"),
)
NO_END = "\\ No newline at end of file\n"


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (folder / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "bin").write_bytes(b"\x00\x01")
    (folder / "end").write_text("no end")
    (folder / ".git").mkdir()
    (tmp_path / "outside").write_text("secret\n")
    (folder / "link").symlink_to(tmp_path / "outside")
    return folder


def content(place):
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))
    }


def rehearsed(place, name, arguments, *, first=()):
    """The rehearsal of a call; then what the call itself gives, and whether the rehearsal had changed anything."""

    async def scenario():
        workspace = Workspace(place, prefer="none")
        await workspace.connect()
        try:
            group = make_ensemble(workspace, ACTIONS, single=True)
            for each, given_ in first:
                await run_invoker(group.access_invoker(each), given_)
            before = content(place)
            invoker = group.access_invoker(name)
            found = await dry_run_edit(invoker, InvocationCanister("call_1", name, arguments, ""))
            assert content(place) == before
            result = await run_invoker(invoker, arguments, identifier="call_1", on_error="feedback")
            return found, result
        finally:
            await workspace.disconnect()

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "arguments", "diff"),
    [
        (
            "replace_in_file",
            {"path": "src/a.py", "old": "two", "new": "2"},
            "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
        ),
        (
            "write_file",
            {"path": "new/folder/b.py", "content": "x\n"},
            "--- /dev/null\n+++ b/new/folder/b.py\n@@ -0,0 +1 @@\n+x\n",
        ),
        ("write_file", {"path": "src/a.py", "content": "one\ntwo\nthree\n"}, "--- a/src/a.py\n+++ b/src/a.py\n"),
        ("write_file", {"path": "empty", "content": ""}, "--- /dev/null\n+++ b/empty\n"),
        (
            "append_file",
            {"path": "end", "content": "more\n"},
            f"--- a/end\n+++ b/end\n@@ -1 +1,2 @@\n-no end\n{NO_END}+no end\n+more\n{NO_END}",
        ),
        ("delete_file", {"path": "end"}, f"--- a/end\n+++ /dev/null\n@@ -1 +0,0 @@\n-no end\n{NO_END}"),
        ("delete_file", {"path": "bin"}, "--- a/bin\n+++ /dev/null\n(not shown: it is no text)\n"),
        (
            "replace_in_file",
            {"path": "crlf.txt", "old": "two", "new": "2"},
            "--- a/crlf.txt\n+++ b/crlf.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
        ),
        (
            "apply_patch",
            {"patch": "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,3 @@\n one\n+more\n two\n"},
            "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,3 +1,4 @@\n one\n+more\n two\n three\n",
        ),
    ],
)
def test_an_edit_is_shown_and_not_done(place, name, arguments, diff):
    found, result = rehearsed(place, name, arguments)
    assert (diff_of(found.changes), found.error) == (diff, "")
    assert (result.text, result.error) == (found.result.text, None)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("replace_in_file", {"path": "src/a.py", "old": "four", "new": "4"}, "old is not in the file"),
        ("replace_in_file", {"path": "src/b.py", "old": "four", "new": "4"}, "there is no file"),
        ("replace_in_file", {"path": "src/a.py"}, "required"),
        ("write_file", {"path": "../outside", "content": "x"}, "outside of"),
        ("write_file", {"path": "link", "content": "x"}, "outside of"),
        ("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}, "not to be changed"),
        ("write_file", {"path": "new/.git/config", "content": "x"}, "not to be changed"),
        ("write_file", {"path": "src", "content": "x"}, "directory"),
        ("delete_file", {"path": "nothing"}, "nothing"),
        ("delete_file", {"path": "src"}, "directory"),
        ("edit_lines", {"path": "src/a.py", "start_line": 2, "new_content": "2\n"}, "not seen"),
    ],
)
def test_an_edit_that_fails_says_what_the_edit_itself_says(place, name, arguments, why):
    found, result = rehearsed(place, name, arguments)
    assert found.error
    assert diff_of(found.changes) == ""
    assert result.error is not None
    assert why.lower() in found.error.lower()
    assert why.lower() in result.error.message.lower()


def test_what_was_seen_before_counts_and_what_the_rehearsal_showed_does_not(place):
    edit = {"path": "src/a.py", "start_line": 2, "new_content": "2\n"}
    found, result = rehearsed(place, "edit_lines", edit, first=[("read_file", {"path": "src/a.py"})])
    assert (found.error, result.error) == ("", None)
    found, result = rehearsed(place, "edit_lines", edit | {"start_line": 1})
    # Had the rehearsal's error been seen, the call would have gone through.
    assert found.error
    assert result.error is not None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "src/a.py"}),
        ("bash", {"command": "touch here"}),
        ("run_tests", {}),
        ("git_commit", {"message": "x"}),
    ],
)
def test_what_is_no_edit_is_never_rehearsed(place, name, arguments):
    found, _ = rehearsed(place, name, arguments)
    assert found is None


def applied(before, hunks):
    """What a unified_diff diff makes of lines."""
    after, at = [], 0
    for line in hunks:
        if line.startswith("@@"):
            start, _, length = line.split()[1][1:].partition(",")
            begin = int(start) - (length != "0")
            after += before[at:begin]
            at = begin
        elif line[0] == "+":
            after.append(line[1:])
        else:
            assert before[at] == line[1:]
            at += 1
            if line[0] == " ":
                after.append(line[1:])
    return after + before[at:]


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "@@", "+"]), max_size=20)


@given(before=LINES, after=LINES)
def test_a_diff_makes_one_text_of_the_other(before, after):
    hunks = [*unified_diff(before, after)]
    assert applied(before, hunks) == after
    assert bool(hunks) == (before != after)


@given(before=LINES, after=LINES)
def test_so_does_one_of_what_is_too_long_to_be_compared(before, after):
    most, changed_files.MAX_MATCHED = changed_files.MAX_MATCHED, 0
    try:
        assert applied(before, [*unified_diff(before, after)]) == after
    finally:
        changed_files.MAX_MATCHED = most


def test_one_change_in_many_lines_is_one_hunk():
    before = [str(number) for number in range(100_000)]
    after = [*before[:50_000], "new", *before[50_001:]]
    expected = [*difflib.unified_diff(before[49_990:50_010], after[49_990:50_010], lineterm="")][3:]
    assert [*unified_diff(before, after)] == ["@@ -49998,7 +49998,7 @@", *expected]


def test_the_root_may_be_spelled_through_a_link(place, tmp_path):
    (tmp_path / "other").symlink_to(place)
    arguments = {"path": str(tmp_path / "other" / "src" / "a.py"), "old": "two", "new": "2"}
    found, _ = rehearsed(tmp_path / "other", "replace_in_file", arguments)
    assert diff_of(found.changes).startswith("--- a/src/a.py\n")
