"""The end of a command's output on disk while the command runs."""

import asyncio

import pytest

from callboard.sandbox import CommandLimits, Confinement
from callboard.sandbox.process import MAX_BYTES, OutputFile, read_end


def test_the_end_is_in_the_file_and_no_more(tmp_path):
    file = OutputFile(path := tmp_path / "output")
    assert read_end(path, 100) == ""
    whole = b""
    for number in range(9000):
        line = b"%d\n" % number
        whole += line
        file.feed(line)
        assert path.stat().st_size <= 2 * MAX_BYTES
    assert whole.endswith(path.read_bytes())
    assert path.stat().st_size >= MAX_BYTES
    assert read_end(path, 13) == "...\n8998\n8999\n"
    file.feed(b"x" * 9 * MAX_BYTES)
    assert path.read_bytes() == b"x" * MAX_BYTES
    file.close(keep=True)
    assert path.exists()
    OutputFile(path).close(keep=False)
    assert read_end(path, 100) is None


def test_a_file_that_cannot_be_written_stops_no_command(tmp_path):
    file = OutputFile(tmp_path / "missing" / "output")
    file.feed(b"text")
    file.close(keep=False)


@pytest.mark.parametrize("ends", [True, False])
def test_the_file_is_there_until_the_outcome_is(sandbox, workspace, tmp_path, ends):
    path = tmp_path / "output"
    command = ["sh", "-c", f"echo begun; sleep {0 if ends else 4713}"]
    confinement = Confinement(workspace=workspace, output_file=path, limits=CommandLimits(seconds=60))

    async def scenario():
        task = asyncio.create_task(sandbox.run(command, confinement))
        if ends:
            return await task
        while not read_end(path, 100):  # noqa: ASYNC110  # another process writes what we wait for
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return None

    asyncio.run(scenario())
    assert read_end(path, 100) == (None if ends else "begun\n")
