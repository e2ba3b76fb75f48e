"""Who may read a database's file, and where it may be."""

import os
import stat

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


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/proc/x/jobs.db"):
        with pytest.raises((CallerError, DatabaseUnavailable)) as caught:
            Database.open(f"sqlite:///{path}")
        assert caught.value.hint
