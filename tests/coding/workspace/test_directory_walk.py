from __future__ import annotations

import asyncio
import os
import threading

import pytest

from callboard.coding.workspace.directory_walk import files_below, path_sort_key, walk_directory
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.text.display import escape


@pytest.fixture
def files(tmp_path):
    root = tmp_path / "root"
    for name in ("b/two", "b/deep/three", "a", "c.txt", "node_modules/x", ".git/HEAD", "b-c"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "link").symlink_to("b")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "pipe")
    made = ConfinedDirectory(str(root))
    asyncio.run(made.connect())
    yield made
    asyncio.run(made.disconnect())


def paths(found):
    return [entry.path for entry in found.entries]


def test_breadth_first_and_by_name(files):
    found = walk_directory(files, ".")
    assert paths(found) == [
        ".git", "a", "b", "b-c", "c.txt", "link", "node_modules", "pipe", "up", "b/deep", "b/two", "b/deep/three",
    ]  # fmt: skip
    kinds = {entry.path: (entry.kind, entry.depth) for entry in found.entries}
    assert kinds["b"] == ("directory", 1)
    assert kinds["b/deep/three"] == ("file", 3)
    assert kinds["link"] == kinds["up"] == ("link", 1)
    assert kinds["pipe"] == ("other", 1)
    assert not found.cut


@pytest.mark.parametrize(
    ("limit", "count", "cut"), [(100, 12, False), (12, 12, False), (11, 11, True), (1, 1, True), (0, 0, True)]
)
def test_no_more_than_the_limit(files, limit, count, cut):
    found = walk_directory(files, ".", limit=limit)
    assert (len(found.entries), found.cut) == (count, cut)


def test_depth_and_what_is_skipped(files):
    assert paths(walk_directory(files, "b", depth=1)) == ["deep", "two"]
    assert "node_modules/x" in paths(walk_directory(files, ".", skip=lambda _: False))
    assert paths(walk_directory(files, "link")) == ["deep", "two", "deep/three"]
    with pytest.raises(PermissionError):
        walk_directory(files, "up")
    with pytest.raises(NotADirectoryError):
        walk_directory(files, "a")


def test_files_in_the_order_of_paths(files):
    assert files_below(files, ".") == (["a", "b/deep/three", "b/two", "b-c", "c.txt"], False)
    assert files_below(files, "b/") == (["b/deep/three", "b/two"], False)
    assert sorted(["b-c", "b/a", "b"], key=path_sort_key) == ["b", "b/a", "b-c"]


def test_names_on_one_line():
    assert escape("a/b c") == "a/b c"
    assert escape("a\nb\x1b") == "a\\nb\\x1b"
    assert escape(os.fsdecode(b"\xff")) == "\\udcff"


def test_a_deep_tree(tmp_path):
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=opened)
        below = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    os.close(opened)
    made = ConfinedDirectory(str(tmp_path))
    asyncio.run(made.connect())
    assert len(walk_directory(made, ".").entries) == 400
    asyncio.run(made.disconnect())


def test_a_directory_that_becomes_a_link(tmp_path):
    """Whoever swaps names while it walks leads it nowhere."""
    root = tmp_path / "root"
    (root / "a" / "inner").mkdir(parents=True)
    (tmp_path / "beside" / "inner" / "secret").mkdir(parents=True)
    made = ConfinedDirectory(str(root))
    asyncio.run(made.connect())
    going = True

    def swap():
        while going:
            (root / "a").rename(root / "moved")
            (root / "a").symlink_to(tmp_path / "beside")
            (root / "a").unlink()
            (root / "moved").rename(root / "a")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = {path for _ in range(500) for path in paths(walk_directory(made, "."))}
    finally:
        going = False
        swapping.join()
        asyncio.run(made.disconnect())
    assert not [path for path in seen if "secret" in path]
