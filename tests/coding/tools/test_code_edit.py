from __future__ import annotations

import asyncio
import os

import pytest
from tests.tables import table

from callboard.coding.tools.code_edit import (
    FileChange,
    apply_patch,
    code_edit,
    delete_lines,
    edit_lines,
    get_lines,
    insert_lines,
    write_files,
)
from callboard.coding.tools.file import read_file, write_file
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.tools import Invoker, Policy

TEXT = "".join(f"line {number}\n" for number in range(1, 10))


@pytest.fixture
def at(desk):
    made = desk(code_edit, get_lines, edit_lines, insert_lines, delete_lines, apply_patch, read_file, write_file)
    made.write("f", TEXT)
    return made


def lines(text):
    return text.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "f", "start_line": 3, "end_line": 4},
        {"path": "f", "start_line": "3", "end_line": "4"},
        {"path": "f", "start_line": "3:4"},
        {"-f": "f", "-l": "3:4"},
        {"action": "get_lines", "path": "f", "start_line": 3, "end_line": 4, "new_content": None},
    ],
)
def test_lines_are_shown_with_their_numbers(at, arguments):
    assert at.call("code_edit", **arguments) == "3| line 3\n4| line 4\n[lines 3 to 4 of 9]"


def test_lines_to_the_end(at):
    assert at.call("get_lines", path="f", start_line=8) == "8| line 8\n9| line 9"
    assert at.call("get_lines", path="f", start_line="8:") == "8| line 8\n9| line 9"
    assert at.call("get_lines", path="f", start_line=8, end_line=1000) == "8| line 8\n9| line 9"
    assert "the file has 9 lines; 10:9 is no range of them" in at.refused("get_lines", path="f", start_line=10)


def test_a_long_file_is_read_part_by_part(at):
    at.write("long", "".join(f"{'x' * 90} {number}\n" for number in range(1, 1001)))
    told = at.call("get_lines", path="long")
    last = int(told.rpartition("to ")[2].split(" of ")[0])
    assert told.endswith(f"[lines 1 to {last} of 1000]")
    assert at.call("get_lines", path="long", start_line=last + 1).startswith(f"{last + 1}| x")


def test_the_seeds_example(at):
    """`code_edit -f F -l 3:9 -r TEXT`."""
    at.call("read_file", path="f")
    assert at.call("code_edit", **{"-f": "f", "-l": "3:9", "-r": "TEXT"}) == (
        "Edited f:\n1| line 1\n2| line 2\n3| TEXT"
    )
    assert at.read("f") == "line 1\nline 2\nTEXT\n"
    assert at.call("code_edit", **{"-f": "f", "-l": "3", "-a": "more"}).startswith("Inserted into f:\n")
    assert at.call("code_edit", **{"-f": "f", "-a": "end"}).startswith("Appended to f:\n")
    assert at.read("f") == "line 1\nline 2\nTEXT\nmore\nend\n"
    assert at.call("code_edit", **{"-f": "new", "-a": "first"}) == "Wrote 5 bytes to new"


EDITS = [
    ("edit_lines", {"start_line": 3, "end_line": 4, "new_content": "x"}, "lines 3 to 4"),
    ("delete_lines", {"start_line": 3, "end_line": 4}, "lines 3 to 4"),
    ("insert_lines", {"line_number": 3, "content": "x"}, "line 3"),
]


@pytest.mark.parametrize(("tool", "arguments", "told"), EDITS)
def test_lines_that_were_never_seen(at, tool, arguments, told):
    refused = at.refused(tool, path="f", **arguments)
    assert refused.startswith(
        f"EditRefused: you have not seen these lines under these numbers; here {'are' if 's' in told.split()[0] else 'is'} {told}:\n3| line 3"
    )
    assert refused.endswith("If these are the lines you mean, make the same call again.")
    assert at.read("f") == TEXT
    # Shown is seen.
    at.call(tool, path="f", **arguments)
    assert at.read("f") != TEXT


@pytest.mark.parametrize(("tool", "arguments", "told"), EDITS)
def test_lines_that_changed_since(at, tool, arguments, told):
    at.call("read_file", path="f")
    at.write("f", changed := TEXT.replace("line 3", "LINE 3"))
    refused = at.refused(tool, path="f", **arguments)
    assert refused.startswith("EditRefused: the file changed since you read it; here ")
    assert told in refused
    assert "3| LINE 3" in refused
    assert at.read("f") == changed
    at.call(tool, path="f", **arguments)


def test_a_change_elsewhere_does_not_matter(at):
    at.call("read_file", path="f")
    at.write("f", TEXT.replace("line 9", "LINE 9"))
    at.call("edit_lines", path="f", start_line=3, new_content="x")
    assert lines(at.read("f"))[2] == "x"


def test_lines_that_moved_are_not_seen_any_more(at):
    at.call("read_file", path="f")
    told = at.call("insert_lines", path="f", line_number=2, content="new")
    assert told.endswith("What is behind that is 1 line further down now.")
    assert "you have not seen these lines" in at.refused("edit_lines", path="f", start_line=7, new_content="x")
    # What was shown around the change is.
    at.call("edit_lines", path="f", start_line=3, new_content="x")
    # So is what stands above it.
    at.call("edit_lines", path="f", start_line=1, new_content="y")


def test_from_the_bottom_up_nothing_moves(at):
    at.call("read_file", path="f")
    for line in (8, 5, 2):
        at.call("edit_lines", path="f", start_line=line, new_content="a\nb")
    assert len(lines(at.read("f"))) == 12


def test_what_a_model_wrote_it_has_seen(at):
    at.call("write_file", path="g", content=TEXT)
    at.call("edit_lines", path="./g", start_line=9, new_content="x")


def test_a_long_range_is_shown_in_part(at):
    at.write("long", "x" * 99 + "\n" + ("y" * 99 + "\n") * 999)
    refused = at.refused("delete_lines", path="long", start_line="1:1000")
    assert refused.endswith("Read on with get_lines.")
    assert "you have not seen" in at.refused("delete_lines", path="long", start_line="1:1000")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "f", "start_line": 9, "end_line": 10, "new_content": "x"}, "the file has 9 lines; 9:10 is no range"),
        ({"path": "f", "start_line": "x", "new_content": "x"}, "'x' is no range of lines; write 3:9"),
        ({"path": "f", "new_content": "x"}, "start_line\n  Field required"),
    ],
)
def test_what_is_no_range(at, arguments, told):
    assert told in at.refused("edit_lines", **arguments)


def test_the_same_again_changes_nothing(at):
    at.call("read_file", path="f")
    assert "nothing would change" in at.refused("edit_lines", path="f", start_line=1, new_content="line 1")


PATCH = """*** Begin Patch
*** Update File: f
@@
-line 3
+three
*** Add File: new/g
+one
*** Update File: old
*** Move to: moved
@@
-x
+y
*** Delete File: gone
*** End Patch"""


def test_a_patch_of_several_files(at):
    at.write("old", "x\n").chmod(0o755)
    at.write("gone", "z\n")
    assert at.call("apply_patch", patch=PATCH) == (
        "Updated f:\n1| line 1\n2| line 2\n3| three\n4| line 4\n5| line 5\n"
        "Added new/g (1 lines)\nMoved old to moved\nDeleted gone"
    )
    assert at.names() == ["f", "moved", "new/g"]
    assert [at.read(name) for name in at.names()] == [TEXT.replace("line 3", "three"), "y\n", "one\n"]
    assert (at.root / "moved").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"old": "other\n", "gone": ""}, "old: hunk 1 of 1: its lines are not in the file"),
        ({"old": "x\n"}, "No such file or directory: 'gone'"),
        ({"old": "x\n", "gone": "", "new/g": ""}, "new/g: new/g is there already"),
        ({"old": "x\n", "gone": "", "moved": ""}, "old: moved is there already"),
        ({"old": b"\0", "gone": ""}, "old: it is a binary file"),
    ],
)
def test_all_of_a_patch_or_nothing(at, wrong, told):
    for name, content in wrong.items():
        at.write(name, content)
    before = {name: at.read(name) for name in at.names()}
    assert told in at.refused("apply_patch", patch=PATCH)
    assert {name: at.read(name) for name in at.names()} == before


def test_what_was_written_is_put_back(at, monkeypatch):
    """The third write fails: the disk is full, or somebody took the right to write away."""
    at.write("old", "x\n").chmod(0o755)
    at.write("gone", "z\n")
    before = {name: at.read(name) for name in at.names()}
    count = iter(range(100))
    fsync = os.fsync

    def full(file):
        if next(count) == 2:
            raise OSError(28, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in at.refused("apply_patch", patch=PATCH)
    assert {name: at.read(name) for name in at.names()} == before
    assert (at.root / "old").stat().st_mode & 0o777 == 0o755


def test_a_file_that_stands_in_two_places_of_a_patch(at):
    parts = "*** Update File: f\n@@\n-line 3\n+three\n*** Update File: f\n@@\n-line 5\n+five"
    at.call("apply_patch", patch=f"*** Begin Patch\n{parts}\n*** End Patch")
    assert lines(at.read("f"))[2:5] == ["three", "line 4", "five"]
    parts = "*** Update File: f\n@@\n-three\n+3\n*** Add File: g\n+a\n*** Delete File: ./f"
    assert "f is in the patch twice" in at.refused("apply_patch", patch=f"*** Begin Patch\n{parts}\n*** End Patch")


def test_a_diff_with_windows_ends(at):
    at.write("f", TEXT.replace("\n", "\r\n"))
    at.call("code_edit", patch="--- a/f\r\n+++ b/f\r\n@@ -3 +3 @@\r\n-line 3\r\n+three\r\n")
    assert at.read("f") == TEXT.replace("line 3", "three").replace("\n", "\r\n")


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", ".git/config", "sub/.Git/config", "link/x"])
@pytest.mark.parametrize(
    "form", ["Add File: {}\n+x", "Delete File: {}", "Update File: {}\n@@\n-x\n+y", "Update File: f\n*** Move to: {}"]
)
def test_patches_stay_inside(at, tmp_path, path, form):
    (tmp_path / "out").write_text("x\n")
    (at.root / "link").symlink_to(tmp_path)
    at.write(".git/config", "x\n")
    at.write("sub/.git/config", "x\n")
    before = at.names()
    patch = f"*** Begin Patch\n*** Add File: first\n+1\n*** {form.format(path)}\n*** End Patch"
    assert at.refused("apply_patch", patch=patch).startswith(("PermissionError", "FileNotFoundError", "EditRefused"))
    assert at.names() == before
    assert (tmp_path / "out").read_text() == at.read(".git/config") == "x\n"


@table("tool", [apply_patch, code_edit])
def test_permissions_see_the_files_of_a_patch(tool):
    patch = "*** Begin Patch\n*** Update File: f\n-a\n+b\n*** Update File: secrets/key\n-a\n+b\n*** End Patch"
    arguments = {"patch": patch, "files": ["f"], **({"action": "apply_patch"} if tool is code_edit else {})}
    allow, deny = (f"{tool.name}(*)", "allow"), (f"{tool.name}(secrets/**)", "deny")
    assert Policy([allow, deny]).decide(Invoker.of(tool), arguments)[0] == "deny"
    assert Policy([allow]).decide(Invoker.of(tool), arguments)[0] == "ask"
    assert Policy([allow, (f"{tool.name}(secrets/*)", "allow")]).decide(Invoker.of(tool), arguments)[0] == "allow"


@pytest.fixture
def files(tmp_path):
    made = ConfinedDirectory(str(tmp_path), (".git",))
    asyncio.run(made.connect())
    yield made
    asyncio.run(made.disconnect())


def test_all_or_none(files, tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    good = [FileChange("a", b"1", b"x"), FileChange("b", b"2", None, 0o644), FileChange("c/d", None, b"y")]
    with pytest.raises(PermissionError):
        write_files(files, [*good, FileChange(".git/config", None, b"bad")])
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {"a": b"1", "b": b"2"}
    write_files(files, good)
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {"a": b"x", "d": b"y"}


def test_what_cannot_be_put_back_is_said(files, monkeypatch):
    write = files.write

    def once(path, data, mode=None):
        if data != b"new":
            raise OSError(28, "No space left on device")
        write(path, data, mode)

    monkeypatch.setattr(files, "write", once)
    with pytest.raises(OSError, match="No space left") as failed:
        write_files(files, [FileChange("a", b"old", b"new"), FileChange("b", None, b"newer")])
    assert failed.value.__notes__ == ["a could not be put back: [Errno 28] No space left on device"]
