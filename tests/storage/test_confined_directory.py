from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest

from callboard.errors import CallerError
from callboard.storage.confined_directory import MAX_STEPS, ConfinedDirectory


@pytest.fixture
def root(tmp_path):
    """A directory with links in it, and a secret beside it."""
    root = tmp_path / "inside"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("in a")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "beside").mkdir()
    (tmp_path / "rooted").mkdir()
    (tmp_path / "rooted" / "file").write_text("secret")
    for name, target in {
        "up": "a/file",
        "a/b/up": "../file",
        "absolute": root / "a",
        "twice": "absolute",
        "out": "../secret",
        "out-by-steps": "a/../../secret",
        "out-absolute": tmp_path / "secret",
        "etc": "/etc",
        "a/out": "../../beside",
        "loop": "loop",
        "one": "other",
        "other": "one",
        "nowhere": "nothing",
        "back": "../inside/a/file",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def beneath(root):
    made = ConfinedDirectory(str(root))
    asyncio.run(made.connect())
    yield made
    asyncio.run(made.disconnect())


@pytest.mark.parametrize(
    "path",
    [
        "a/file",
        "./a//file",
        "a/b/../file",
        "up",
        "a/b/up",
        "absolute/file",
        "twice/file",
        "absolute/b/up",
        "absolute/b/../file",
        "{root}/a/file",
        "{root}/./a/b/../file",
        "{root}/absolute/file",
    ],
)
def test_what_is_beneath(beneath, root, path):
    assert beneath.read(path.format(root=root), 100) == b"in a"


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "a/../../secret",
        "a/b/../../../secret",
        "out",
        "out-by-steps",
        "out-absolute",
        "etc/passwd",
        "a/out/new",
        "/etc/passwd",
        "/",
        "..",
        "{root}/../secret",
        "{root}ed/file",
        "{root}/../inside/a/file",
        "back",
    ],
)
def test_what_is_outside(beneath, root, tmp_path, path):
    before = sorted(tmp_path.rglob("*"))
    for act in (
        lambda path: beneath.read(path, 100),
        lambda path: beneath.write(path, b"new"),
        lambda path: beneath.names(path, 100),
    ):
        with pytest.raises(PermissionError, match=f"is outside of '{root}'"):
            act(path.format(root=root))
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.parametrize(
    ("path", "error", "number"),
    [
        ("nothing", FileNotFoundError, errno.ENOENT),
        ("nowhere", FileNotFoundError, errno.ENOENT),
        ("nothing/file", FileNotFoundError, errno.ENOENT),
        ("a", IsADirectoryError, errno.EISDIR),
        ("", IsADirectoryError, errno.EISDIR),
        ("a/file/more", NotADirectoryError, errno.ENOTDIR),
        ("loop", OSError, errno.ELOOP),
        ("one/file", OSError, errno.ELOOP),
        ("pipe", PermissionError, errno.EACCES),
        ("a/" * MAX_STEPS + "x", OSError, errno.ENAMETOOLONG),
        ("x" * 300, OSError, errno.ENAMETOOLONG),
    ],
)
def test_what_cannot_be_read(beneath, path, error, number):
    with pytest.raises(error) as caught:
        beneath.read(path, 100)
    assert (caught.value.errno, caught.value.filename) == (number, path)


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_what_is_no_path(beneath, path):
    with pytest.raises(ValueError, match=r"null byte|null character|surrogates"):
        beneath.read(path, 100)


@pytest.mark.parametrize(("limit", "read"), [(4, b"in a"), (3, None), (0, None)])
def test_the_limit_of_what_is_read(beneath, limit, read):
    if read is None:
        with pytest.raises(OSError, match=f"File has more than {limit} bytes: 'up'"):
            beneath.read("up", limit)
    else:
        assert beneath.read("up", limit) == read


def test_what_is_written_is_there(beneath, root):
    beneath.write("a/new", b"1")
    beneath.write("x/y/z", b"2")
    beneath.write(f"{root}/absolute/third", b"3")
    assert [(root / name).read_bytes() for name in ("a/new", "x/y/z", "a/third")] == [b"1", b"2", b"3"]


def test_a_file_that_is_written_keeps_what_it_was(beneath, root):
    file = root / "a" / "file"
    file.chmod(0o751)
    beneath.write("a/b/up", b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o751)
    assert (root / "a/b/up").is_symlink()
    assert sorted(os.listdir(root / "a")) == ["b", "file", "out"]  # noqa: PTH208 - names are what is asked


def test_whoever_reads_keeps_the_old(beneath, root):
    with (root / "a/file").open() as opened:
        beneath.write("a/file", b"new")
        assert opened.read() == "in a"


@pytest.mark.parametrize(
    ("path", "error"),
    [("a", IsADirectoryError), ("pipe", PermissionError), ("a/file/new", NotADirectoryError), ("loop", OSError)],
)
def test_what_cannot_be_written(beneath, root, path, error):
    with pytest.raises(error):
        beneath.write(path, b"new")
    assert (root / "a/file").read_text() == "in a"


def test_a_full_disk_leaves_everything_as_it_was(beneath, root, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(root.rglob("*"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: 'a/file'"):
        beneath.write("a/file", b"new")
    monkeypatch.undo()
    assert sorted(root.rglob("*")) == before
    assert (root / "a/file").read_text() == "in a"


def test_names(beneath):
    assert beneath.names("a", 10) == ["b/", "file", "out"]
    assert beneath.names("absolute/b", 10) == ["up"]
    assert beneath.names("", 100) == beneath.names(".", 100)
    with pytest.raises(OSError, match="Directory has more than 2 names"):
        beneath.names("a", 2)
    with pytest.raises(NotADirectoryError):
        beneath.names("a/file", 10)


def test_a_directory_that_becomes_a_link(beneath, root, tmp_path):
    """Whoever swaps names while paths are walked gets nobody out."""
    (tmp_path / "beside" / "file").write_text("secret")
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
        seen = set()
        for _ in range(3000):
            try:
                seen.add(beneath.read("a/file", 100))
            except OSError as error:
                seen.add(type(error))
    finally:
        going = False
        swapping.join()
    assert b"secret" not in seen


def test_a_root_that_is_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    made = ConfinedDirectory(str(tmp_path / "link"))
    asyncio.run(made.connect())
    for path in (tmp_path / "link" / "up", root / "up"):
        assert made.read(str(path), 100) == b"in a"
    asyncio.run(made.disconnect())


def test_the_current_directory_is_that_of_connecting(root, monkeypatch, tmp_path):
    made = ConfinedDirectory()
    monkeypatch.chdir(root)
    asyncio.run(made.connect())
    monkeypatch.chdir(tmp_path)
    assert made.read("up", 100) == made.read(f"{root}/up", 100) == b"in a"
    asyncio.run(made.disconnect())


def test_the_root_of_all():
    made = ConfinedDirectory("/")
    asyncio.run(made.connect())
    assert made.names("/", 1000) == made.names("", 1000)
    with pytest.raises(PermissionError):
        made.names("..", 1000)
    asyncio.run(made.disconnect())


@pytest.mark.parametrize(("name", "told"), [("nothing", "No such file or directory"), ("a/file", "Not a directory")])
def test_a_root_that_is_none(root, name, told):
    with pytest.raises(CallerError, match=told):
        asyncio.run(ConfinedDirectory(str(root / name)).connect())


def test_no_descriptor_is_left_open(root):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are what is asked
    made = ConfinedDirectory(str(root))
    asyncio.run(made.connect())
    asyncio.run(made.connect())
    for path in ("a/b/up", "nothing", "out", "loop", "pipe", "a"):
        for act in (lambda path: made.read(path, 9), lambda path: made.names(path, 9)):
            try:
                act(path)
            except OSError:
                continue
    asyncio.run(made.disconnect())
    asyncio.run(made.disconnect())
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
    with pytest.raises(RuntimeError, match="the ensemble is not connected"):
        made.read("up", 100)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root: only root gives files away")


@as_root
def test_as_root_files_keep_their_owner_and_new_ones_have_their_directorys(beneath, root):
    os.chown(root / "a" / "file", 1234, 2345)
    os.chown(root / "a" / "b", 3456, 4567)
    beneath.write("a/file", b"new")
    beneath.write("a/b/c/d", b"new")
    owners = [(each.stat().st_uid, each.stat().st_gid) for each in (root / "a/file", root / "a/b/c", root / "a/b/c/d")]
    assert owners == [(1234, 2345), (3456, 4567), (3456, 4567)]


def test_nothing_that_is_written_runs_as_its_owner(beneath, root):
    (root / "a" / "file").chmod(0o6755)
    beneath.write("a/file", b"new")
    assert (root / "a" / "file").stat().st_mode & 0o7777 == 0o755


def test_permissions_of_a_new_file(beneath, root):
    beneath.write("new", b"", 0o700)
    beneath.write("a/file", b"", 0o700)
    assert (root / "new").stat().st_mode & 0o777 == 0o700
    assert (root / "a" / "file").stat().st_mode & 0o777 == 0o644


def test_another_name_of_a_file_is_left_what_it_was(beneath, root):
    (root / "same").hardlink_to(root / "a" / "file")
    beneath.write("a/file", b"new")
    assert (root / "same").read_bytes() == b"in a"


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("a/file", "a/file"),
        ("./a//b/../file", "a/file"),
        ("{root}/a/file", "a/file"),
        ("up", "a/file"),
        ("twice/b/up", "a/file"),
        ("a/new", "a/new"),
        ("absolute/new", "a/new"),
        ("", ""),
        ("a/b/..", "a"),
        ("{root}", ""),
    ],
)
def test_the_one_path(beneath, root, path, canonical):
    assert beneath.canonical(path.format(root=root)) == canonical


def test_a_file_is_opened_and_looked_at(beneath):
    with beneath.open("up") as file:
        assert file.read(2) == b"in"
        assert file.read() == b" a"
    assert beneath.stat("up").st_size == 4
    for path, error in (
        ("a", IsADirectoryError),
        ("pipe", PermissionError),
        ("out", PermissionError),
        ("x", FileNotFoundError),
    ):
        with pytest.raises(error):
            beneath.open(path)
    with pytest.raises(PermissionError):
        beneath.stat("out")


def test_a_directory_is_opened(beneath):
    with beneath.directory("absolute/b") as opened:
        assert os.listdir(opened) == ["up"]  # noqa: PTH208  # of a descriptor
    with pytest.raises(NotADirectoryError), beneath.directory("up"):
        pass


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("a", IsADirectoryError),
        ("", IsADirectoryError),
        ("a/b/..", IsADirectoryError),
        ("pipe", PermissionError),
        ("nothing", FileNotFoundError),
        ("../secret", PermissionError),
        ("a/out/x", PermissionError),
        ("etc/passwd", PermissionError),
        ("{root}/../secret", PermissionError),
    ],
)
def test_what_cannot_be_deleted(beneath, root, tmp_path, path, error):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error):
        beneath.delete(path.format(root=root))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", ["a/file", "absolute/file", "up", "out", "nowhere", "loop", "etc"])
def test_what_is_deleted_is_a_name(beneath, root, tmp_path, path):
    there = (root / path).parent.resolve() / (root / path).name
    before = {*tmp_path.rglob("*")}
    beneath.delete(path)
    assert before - {*tmp_path.rglob("*")} == {there}
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/config",
        ".GIT/config",
        "a/.Git/hooks/x",
        "git/config",
        "way/new",
        ".git/../a/file",
        "git",
        "x/.git/y",
    ],
)
def test_what_is_kept(root, path):
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("config")
    (root / "git").symlink_to(".git")
    (root / "way").symlink_to("a/../.git/hooks")
    made = ConfinedDirectory(str(root), (".git",))
    asyncio.run(made.connect())
    before = sorted(root.rglob("*"))
    with pytest.raises(PermissionError, match=r"is not to be changed: nothing in '\.(git|GIT|Git)' is"):
        made.write(path, b"new")
    if path != "git":  # a link's own name
        with pytest.raises(PermissionError, match="is not to be changed"):
            made.delete(path)
    assert sorted(root.rglob("*")) == before
    assert made.read(".git/config", 10) == made.read("git/config", 10) == b"config"
    asyncio.run(made.disconnect())
