from __future__ import annotations

import asyncio

import pytest

from callboard.coding.tools.code_edit import FileChange, write_files
from callboard.storage.confined_directory import ConfinedDirectory


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
