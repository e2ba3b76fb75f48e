import gc
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from callboard.sandbox.landlock_process import OLDEST, Permission, landlock_version, start_restricted

pytestmark = pytest.mark.skipif(
    not landlock_version(), reason=f"Landlock: the kernel has none of version {OLDEST} or later"
)
SYSTEM = tuple(map(Path, ("/usr", "/bin", "/lib", "/lib64")))


def output_of(command, permission, **options):
    process = start_restricted(command, permission, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    return process.communicate()[0].decode()


def test_a_program_that_is_not_listed_is_not_run(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    assert output_of([str(script)], Permission((*SYSTEM, tmp_path))) == "ran\n"
    with pytest.raises(PermissionError):
        start_restricted([str(script)], Permission(SYSTEM))
    told = output_of(["/bin/sh", "-c", f"{script} || echo refused"], Permission(SYSTEM))
    assert told.endswith("refused\n")


@pytest.mark.parametrize(
    "change",
    [
        "echo x > file",
        "echo x >> file",
        "rm file",
        "mv file other",
        "mkdir new",
        "rmdir folder",
        "ln -s x new",
        "ln file new",
        "truncate -s 0 file",
        "mkfifo new",
    ],
)
def test_only_what_is_listed_is_changed(tmp_path, change):
    for folder in ("in", "out"):
        (tmp_path / folder / "folder").mkdir(parents=True)
        (tmp_path / folder / "file").write_text("old\n")
    permission = Permission(SYSTEM, (tmp_path / "in", tmp_path / "nothing"))
    output_of(["/bin/sh", "-c", change], permission, cwd=tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["file", "folder"]
    assert (tmp_path / "out" / "file").read_text() == "old\n"
    output_of(["/bin/sh", "-c", change], permission, cwd=tmp_path / "in")
    same = sorted(path.name for path in (tmp_path / "in").iterdir()) == ["file", "folder"]
    assert not (same and (tmp_path / "in" / "file").read_text() == "old\n") or change.startswith("mkfifo")


def test_files_are_moved_between_folders_that_are_listed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "file").touch()
    assert not output_of(["/bin/mv", "a/file", "b/file"], Permission(SYSTEM, (tmp_path,)), cwd=tmp_path)
    assert (tmp_path / "b" / "file").exists()


def test_nobody_is_connected_to(tmp_path):
    script = "import socket; socket.create_connection(('127.0.0.1', 9))"
    permission = Permission((*SYSTEM, Path(sys.base_prefix), Path(sys.prefix)))
    told = output_of([sys.executable, "-c", script], permission, cwd=tmp_path)
    assert "PermissionError" in told or landlock_version() < 4


def test_we_ourselves_are_not_bound(tmp_path):
    output_of(["/bin/true"], Permission(SYSTEM))
    (tmp_path / "file").write_text("x")
    assert subprocess.run(["/bin/sh", "-c", "echo x > other"], cwd=tmp_path, check=False).returncode == 0


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        start_restricted(["/bin/true"], Permission(SYSTEM), cwd=tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        start_restricted([str(tmp_path / "nothing")], None)


def test_no_finalizer_of_ours_has_the_permission_of_a_program(tmp_path):
    class Owner:
        def __init__(self, folder):
            self.cycle = self
            folder.mkdir()
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    class Command(list):
        """A command that is read in the thread with the permission, where much is allocated then."""

        def __iter__(self):
            gc.set_threshold(1)
            assert [[] for _ in range(100)]
            return super().__iter__()

    thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        Owner(tmp_path / "folder")
        output_of(Command(["/bin/true"]), Permission(SYSTEM))
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert [*tmp_path.iterdir()] == []
    assert gc.isenabled()
