from __future__ import annotations

import asyncio

import pytest

from callboard.errors import ModelFileError
from callboard.providers.local.huggingface import blocks


def read(source, *, size, offset=0, patience=5.0):
    async def run():
        return b"".join([block async for block in blocks(source, size=size, offset=offset, patience=patience)])

    return asyncio.run(run())


@pytest.mark.parametrize("knows_ranges", [True, False])
@pytest.mark.parametrize("offset", [0, 1, 65_536, 299_999])
def test_any_beginning_is_left_out(offset, knows_ranges, world, model):
    world.knows_ranges = knows_ranges
    assert read(world.hub("tiny.gguf"), size=len(model), offset=offset) == model[offset:]
    assert world.asked == [(world.hub_path("tiny.gguf"), f"bytes={offset}-")]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_file_of_another_size_is_refused_before_it_is_read(knows_ranges, world, model):
    world.knows_ranges = knows_ranges
    with pytest.raises(ModelFileError, match=r"300000 bytes, not 300001|given 'bytes 0-299999/300000'"):
        read(world.hub("tiny.gguf"), size=len(model) + 1)


def test_a_silent_hub_is_not_waited_for(world, model):
    source = world.hub("tiny.gguf")
    world.silent.add(world.hub_path("tiny.gguf"))
    with pytest.raises(ModelFileError, match=r"tiny.gguf: silent for 0.1 s"):
        read(source, size=len(model), patience=0.1)


def test_a_hub_that_falls_silent_is_not_waited_for(world, model):
    source = world.hub("tiny.gguf")
    world.pause[world.hub_path("tiny.gguf")] = 1000
    with pytest.raises(ModelFileError, match=r"silent for 0.5 s"):
        read(source, size=len(model), patience=0.5)


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://127.0.0.1:9", "Cannot connect"),
        ("no address", "no address"),
        ("ftp://127.0.0.1", "ftp"),
    ],
)
def test_an_endpoint_that_cannot_work_is_a_refusal(endpoint, why, world, model, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(ModelFileError, match=why):
        read(world.hub("tiny.gguf"), size=len(model))


def test_no_such_file(world, model):
    source = world.hub("tiny.gguf")
    world.files.clear()
    with pytest.raises(ModelFileError, match="HTTP status 404"):
        read(source, size=len(model))
