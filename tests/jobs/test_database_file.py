"""Permissions and file systems of a database's file."""

import os
import stat
from types import SimpleNamespace

import pytest

from callboard.errors import CallerError
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.database_file import find_file_system, prepare_file

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /home rw shared:1 - nfs4 server:/home rw
31 30 0:41 / /home/ann/my\\040disk rw - xfs /dev/vdb rw
32 22 0:42 / /data rw - ext4 /dev/vdc rw
33 22 0:43 / /data rw - cifs //server/data rw
"""


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS, "utf-8")
    return path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/jobs", "ext4"),
        ("/home/ann", "nfs4"),
        ("/home/ann/my disk/jobs", "xfs"),
        ("/homes", "ext4"),
        ("/data", "cifs"),
    ],
)
def test_the_last_of_the_nearest_mounts_holds_a_path(mounts, tmp_path, path, kind):
    assert find_file_system(tmp_path.__class__(path), mounts) == kind
    assert not find_file_system(tmp_path, tmp_path / "nothing")


def test_a_file_system_of_the_network_is_refused(tmp_path, mounts):
    mounts.write_text("1 1 0:1 / / rw - nfs4 server:/ rw\n", "utf-8")
    with pytest.raises(CallerError, match=r"SQLite does not work on a file system of the network \(nfs4\)"):
        prepare_file(tmp_path / "new" / "jobs.db", mounts=mounts)
    assert not (tmp_path / "new" / "jobs.db").exists()


def test_the_file_is_its_owners_alone_also_where_it_was_not(tmp_path):
    old = os.umask(0)
    try:
        other = tmp_path / "other.db"
        other.touch(0o666)
        for path in (tmp_path / "new" / "jobs.db", other):
            with Database.open(f"sqlite:///{path}"):
                files = [each for each in path.parent.iterdir() if each.name.startswith(path.name)]
                assert len(files) == 3  # with what SQLite keeps beside it
                assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    finally:
        os.umask(old)


def test_a_path_that_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/proc/x/jobs.db"):
        with pytest.raises((CallerError, DatabaseUnavailable)) as caught:
            Database.open(f"sqlite:///{path}")
        assert caught.value.hint


def make_database(path, mode=0o600):
    path.write_bytes(b"SQLite format 3\0" + bytes(84))
    path.chmod(mode)
    return path


@pytest.fixture
def other_user(monkeypatch):
    """Return a function that gives a path to another user: really for root, otherwise only for this process."""

    def give(path):
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
        else:
            monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)

    return give


@pytest.mark.parametrize("content", [b"root:x:0:0::/root:/bin/sh\n", b"[Unit]\n", b"SQLite format 4\0" * 9])
def test_a_file_that_is_not_a_database_keeps_its_mode(tmp_path, content):
    path = tmp_path / "passwd"
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(DatabaseUnavailable, match="passwd: the file is not an SQLite database"):
        prepare_file(path)
    assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) == (0o644, content)


@pytest.mark.parametrize("target", ["other.db", "nothing"])
def test_a_link_is_refused_and_leads_to_nothing(tmp_path, target):
    make_database(tmp_path / "other.db", 0o644)
    link = tmp_path / "jobs.db"
    link.symlink_to(tmp_path / target)
    with pytest.raises(CallerError, match="it is a symbolic link"):
        Database.open(f"sqlite:///{link}")
    assert stat.S_IMODE((tmp_path / "other.db").stat().st_mode) == 0o644
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_the_file_of_another_user_is_refused(tmp_path, mode, other_user):
    path = make_database(tmp_path / "jobs.db", mode)
    other_user(path)
    with pytest.raises(CallerError, match="another user owns"):
        Database.open(f"sqlite:///{path}")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_directory_of_another_user_is_refused(tmp_path, other_user):
    path = make_database(tmp_path / "theirs.db")
    other_user(tmp_path)
    with pytest.raises(CallerError, match="another user owns the directory"):
        prepare_file(path)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path, mode):
    """Also with a sticky bit: others can put files beside the database that SQLite reads."""
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(CallerError, match="other users may write to the directory"):
        prepare_file(directory / "jobs.db")
    assert not (directory / "jobs.db").exists()
    prepare_file(directory / "mine" / "jobs.db")


def test_a_database_that_others_may_have_written_to_is_refused(tmp_path):
    path = make_database(tmp_path / "jobs.db", 0o646)
    with pytest.raises(CallerError, match="other users may have written to it; if you trust its content: chmod 600"):
        prepare_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o646
    path.chmod(0o600)
    prepare_file(path)


@pytest.mark.parametrize(("members", "is_refused"), [([], False), (["me"], False), (["me", "ann"], True)])
def test_a_group_that_only_the_user_is_in_may_write(tmp_path, monkeypatch, members, is_refused):
    """As on systems that give each user a group, and new files to its members."""
    status = tmp_path.stat()
    user = SimpleNamespace(pw_name="me", pw_gid=status.st_gid)
    group = SimpleNamespace(gr_name="me", gr_gid=status.st_gid, gr_mem=members)
    monkeypatch.setattr("pwd.getpwuid", lambda _: user)
    monkeypatch.setattr("grp.getgrgid", lambda _: group)
    path = make_database(tmp_path / "jobs.db", 0o664)
    tmp_path.chmod(0o775)
    if is_refused:
        with pytest.raises(CallerError, match="other users may write to the directory"):
            prepare_file(path)
    else:
        prepare_file(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
