import os
import subprocess

import pytest

from callboard.coding.git import common_directory
from callboard.coding.git.common_directory import PrivateCommonDirectories, remove_stale

LONG_AGO = 1_000_000_000


@pytest.fixture
def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(common_directory.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    remove_stale.cache_clear()
    return tmp_path / "temporary"


def test_what_a_killed_process_left_is_removed_and_what_may_be_in_use_is_not(temporary, tmp_path, gone):
    ages = {f"{gone}-old": LONG_AGO, f"{gone}-new": None, f"{os.getpid()}-old": LONG_AGO, "x-old": LONG_AGO}
    for name, age in ages.items():
        folder = temporary / f"callboard-git-{name}"
        folder.mkdir()
        if age:
            os.utime(folder, (age, age))
    (tmp_path / "common").mkdir()
    folders = PrivateCommonDirectories(tmp_path / "common")
    with folders.open("", keep=False) as made:
        left = {path.name.removeprefix("callboard-git-") for path in temporary.iterdir() if path != made}
    assert left == {*ages} - {f"{gone}-old"}


def test_a_folder_goes_with_its_repository(temporary, tmp_path):
    (tmp_path / "common").mkdir()
    folders = PrivateCommonDirectories(tmp_path / "common")
    with folders.open("", keep=True):
        pass
    assert len([*temporary.iterdir()]) == 1
    del folders
    assert [*temporary.iterdir()] == []
