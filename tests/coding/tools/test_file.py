from __future__ import annotations

import asyncio
import os
import threading

import pytest

from callboard.coding.tools.file import append_file, delete_file, file, read_file, replace_in_file, write_file
from callboard.coding.workspace.file_editor import MAX_BYTES, MAX_SHOWN
from callboard.execution import run_invoker


@pytest.fixture
def at(desk):
    return desk(file, read_file, write_file, replace_in_file, append_file, delete_file)


def test_what_is_written_is_read(at):
    assert at.call("file", action="write", path="a/b/c.txt", content="one\ntwo\n") == "Wrote 8 bytes to a/b/c.txt"
    assert at.call("file", path="a/b/c.txt") == "one\ntwo\n"
    assert at.call("read_file", path=f"{at.root}/a/../a/b/c.txt") == "one\ntwo\n"


def test_an_empty_file(at):
    assert at.call("write_file", path="x", content="") == "Wrote 0 bytes to x"
    assert at.call("read_file", path="x") == "(the file is empty)"


def test_a_long_file_is_cut_and_says_how_to_read_on(at):
    at.write("long", "".join(f"line {number}\n" for number in range(1, 10_001)))
    text = at.call("read_file", path="long")
    shown, _, told = text.rpartition("\n")
    count = shown.count("\n") + 1
    assert len(shown) < MAX_SHOWN
    assert shown.endswith(f"\nline {count}")
    assert told == f"[lines 1 to {count} of 10000; read on with get_lines from line {count + 1}]"


def test_a_long_line(at):
    at.write("long", "x" * 100_000)
    assert at.call("read_file", path="long").endswith(
        f"x\n[the first {MAX_SHOWN} of 100000 characters; the first line goes on]"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x7fELF\0\0\1", "b: it is a binary file, not text"),
        (b"\xff\x01\x02", "b: it is a binary file, not text"),
        (b"\xff\xfe\0\0", "b: it is a binary file, not text"),
        (b"x" * (MAX_BYTES + 1), f"File has more than {MAX_BYTES} bytes"),
    ],
)
def test_what_is_no_text(at, content, told):
    at.write("b", content)
    for action in ({"action": "read"}, {"action": "write", "content": "x"}, {"action": "append", "content": "x"}):
        assert told in at.refused("file", path="b", **action)
    assert (at.root / "b").read_bytes() == content


def test_a_gigabyte_is_not_read(at):
    with (at.root / "huge").open("wb") as huge:
        huge.truncate(1 << 30)
    assert f"File has more than {MAX_BYTES} bytes" in at.refused("read_file", path="huge")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\r\nb\r\n", b"a\r\nx\r\n"),
        (b"a\r\nb", b"a\r\nx"),
        (b"a\nb\r\nc\n", b"a\nx\r\nc\n"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nx\n"),
        (b"a\xe9\nb\n", b"a\xe9\nx\n"),
        ("a\nb\n".encode("utf-16"), "a\nx\n".encode("utf-16")),
        (b"a\nb", b"a\nx"),
    ],
)
def test_what_a_file_is_made_of_is_kept(at, old, new):
    path = at.write("f", old)
    at.call("replace_in_file", path="f", old="b", new="x")
    assert path.read_bytes() == new


def test_a_file_that_is_written_over_keeps_its_endings_and_encoding(at):
    path = at.write("f", b"\xef\xbb\xbfa\r\nb\r\n")
    at.call("write_file", path="f", content="x\ny\nz\n")
    assert path.read_bytes() == b"\xef\xbb\xbfx\r\ny\r\nz\r\n"


def test_a_character_that_the_encoding_lacks(at):
    path = at.write("f", b"caf\xe9\n")
    assert "the file is in latin-1, which has no '→' (U+2192)" in at.refused("append_file", path="f", content="→")
    assert path.read_bytes() == b"caf\xe9\n"


def test_replace_tells_what_it_did(at):
    at.write("f.txt", "one\ntwo\nthree\nfour\nfive\nsix\n")
    assert at.call("file", action="replace", path="f.txt", old="three\n", new="3\n3\n") == (
        "Replaced 1 occurrence in f.txt:\n1| one\n2| two\n3| 3\n4| 3\n5| four\n6| five\n"
        "What is behind that is 1 line further down now."
    )
    assert at.call("file", action="replace", path="f.txt", old="i", new="y", all=True).startswith(
        "Replaced 2 occurrences in f.txt:\n"
    )
    assert at.read("f.txt") == "one\ntwo\n3\n3\nfour\nfyve\nsyx\n"


def test_replace_says_what_it_needs(at):
    at.write("f", "  a\n")
    assert at.refused("file", action="replace", path="f", old="a  ", new="b") == (
        "EditRefused: old is not in the file: line 1 of the file differs in indentation only; "
        "this is exactly what the file has:\n  a"
    )
    assert at.read("f") == "  a\n"


def test_a_syntax_error_that_was_not_there_is_told(at):
    at.write("f.py", "def f():\n    return (1)\n")
    told = "Warning: the file does not parse any more; the first syntax error is at line 2."
    assert told in at.call("replace_in_file", path="f.py", old="(1)", new="(1")
    assert "Warning" not in at.call("replace_in_file", path="f.py", old="return", new="yield")


def test_append(at):
    at.write("f", "a")
    at.call("append_file", path="f", content="b\nc\n")
    assert at.read("f") == "a\nb\nc"
    assert at.call("append_file", path="new", content="b\n") == "Wrote 2 bytes to new"


def test_delete(at):
    at.write("f", "a")
    assert at.call("delete_file", path="f") == "Deleted f"
    assert at.names() == []
    assert "No such file" in at.refused("delete_file", path="f")
    (at.root / "folder").mkdir()
    assert "Is a directory" in at.refused("delete_file", path="folder")


def test_what_is_not_there_has_a_hint(at):
    at.write("src/main.py", "")
    assert at.refused("read_file", path="src/mian.py") == (
        "FileNotFoundError: there is no file src/mian.py; did you mean 'main.py'?"
    )
    assert "src is a directory; list it with list_directory" in at.refused("read_file", path="src")


PATHS = [
    "../secret", "/etc/passwd", "link/secret", "out", "a/../../secret", ".git/config", ".GIT/hooks/pre-commit",
    "sub/.git/config", "git/hooks/pre-commit", ".git",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("write_file", {"content": "bad"}),
        ("append_file", {"content": "bad"}),
        ("replace_in_file", {"old": "secret", "new": "bad"}),
        ("delete_file", {}),
    ],
)
def test_nothing_outside_and_nothing_of_git_is_changed(at, tmp_path, path, tool, more):
    (tmp_path / "secret").write_text("secret")
    for name in (".git/config", "sub/.git/config", ".git/hooks/x"):
        at.write(name, "secret")
    (at.root / "link").symlink_to(tmp_path)
    (at.root / "out").symlink_to(tmp_path / "secret")
    (at.root / "git").symlink_to(".git")
    before = at.names()
    if (tool, path) == ("delete_file", "out"):
        # The link is the workspace's own.
        assert at.call(tool, path=path, **more) == "Deleted out"
    else:
        assert "Error: " in at.refused(tool, path=path, **more)
        assert at.names() == before
    for name in (tmp_path / "secret", at.root / ".git/config", at.root / "sub/.git/config"):
        assert name.read_text() == "secret"


def test_git_can_be_read(at):
    at.write(".git/HEAD", "ref: refs/heads/main\n")
    assert at.call("read_file", path=".git/HEAD") == "ref: refs/heads/main\n"


@pytest.mark.parametrize("name", ["a b", "-rf", "a\nb", "ü", "#", "'\"$(x)`", " ", "a\\b", "*"])
def test_odd_names(at, name):
    at.call("write_file", path=name, content="x")
    assert at.call("read_file", path=name) == "x"
    assert "\n" not in at.call("delete_file", path=name)
    assert at.names() == []


def test_what_is_no_path(at):
    assert "ValueError" in at.refused("read_file", path="a\0b")


def test_pipes_and_devices(at):
    os.mkfifo(at.root / "pipe")
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"}), ("delete_file", {})):
        assert "Not a regular file" in at.refused(tool, path="pipe", **more)


def test_a_hard_link_is_left_what_it_was(at):
    at.write("one", "a\n")
    (at.root / "two").hardlink_to(at.root / "one")
    at.call("write_file", path="one", content="b\n")
    assert (at.read("one"), at.read("two")) == ("b\n", "a\n")


async def test_edits_at_the_same_time_do_not_lose_each_other(at):
    at.write("f", "".join(f"<{number}>\n" for number in range(40)))
    edits = [{"path": "f", "old": f"<{number}>", "new": f"[{number}]"} for number in range(40)]
    await at.workspace.connect()
    invoker = at._ensemble.invokers["replace_in_file"]
    assert threading.active_count() < 100
    results = await asyncio.gather(*[run_invoker(invoker, each, on_error="feedback") for each in edits])
    assert all(result.error is None for result in results)
    assert at.read("f") == "".join(f"[{number}]\n" for number in range(40))
