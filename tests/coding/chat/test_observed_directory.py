from __future__ import annotations

import asyncio

import pytest

from callboard.coding.workspace.changed_files import ChangedFile, ObservedDirectory


@pytest.fixture
def observed(tmp_path):
    """What is told of some writes."""

    def observed(*writes):
        changes = []

        async def scenario():
            directory = ObservedDirectory(str(tmp_path), (".git",), changes.append)
            await directory.connect()
            try:
                for write in writes:
                    write(directory)
            finally:
                await directory.disconnect()

        asyncio.run(scenario())
        return changes

    return observed


def test_what_was_written_and_deleted_is_told_with_what_was_there(tmp_path, observed):
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "link").symlink_to("a")
    changes = observed(
        lambda each: each.write("./a", b"two"),
        lambda each: each.write("new/b", b"three"),
        lambda each: each.delete("link"),
        lambda each: each.delete("a"),
    )
    assert changes == [
        ChangedFile("a", b"one", b"two"),
        ChangedFile("new/b", None, b"three"),
        ChangedFile("link", None, None),
        ChangedFile("a", b"two", None),
    ]


def test_a_write_that_fails_is_not_told(observed):
    def write(directory):
        with pytest.raises(PermissionError):
            directory.write(".git/config", b"")
        with pytest.raises(PermissionError):
            directory.write("../out", b"")
        with pytest.raises(FileNotFoundError):
            directory.delete("nothing")

    assert observed(write) == []
