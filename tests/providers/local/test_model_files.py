from __future__ import annotations

from pathlib import Path

import pytest

from callboard.errors import ModelFileError, NoSuchModel
from callboard.providers.local.model_files import Place, directory, locate, remove


@pytest.fixture
def place(tmp_path, monkeypatch, catalogue_of):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    directory().mkdir(parents=True)
    return Place(catalogue_of().find("tiny"))


@pytest.mark.parametrize("given", [None, "", "relative/data"])
def test_without_an_absolute_data_home_models_are_in_the_users(given, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("XDG_DATA_HOME", given)
    assert directory() == Path("/home/ada/.local/share/callboard/models")


@pytest.mark.usefixtures("place")
def test_a_model_that_is_not_here_says_how_to_get_it(catalogue_of):
    with pytest.raises(NoSuchModel, match=r"'tiny' is not here; callboard models pull tiny"):
        locate("tiny", catalogue=catalogue_of())


def test_a_file_that_was_put_here_is_used_if_it_is_the_right_one(place, catalogue_of, model):
    place.file.write_bytes(model)
    assert not place.known_good()
    assert locate("tiny", catalogue=catalogue_of()) == place.file
    assert place.known_good()


@pytest.mark.parametrize("content", [b"", b"half a mod", bytes(300_000)])
def test_a_wrong_file_is_not_used(content, place, catalogue_of):
    place.file.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}; callboard models pull"):
        locate("tiny", catalogue=catalogue_of())


def test_a_file_that_changed_is_no_longer_trusted(place, catalogue_of, model):
    place.file.write_bytes(model)
    locate("tiny", catalogue=catalogue_of())
    place.file.write_bytes(model[:-1])
    assert not place.known_good()


def test_a_broken_record_is_no_record(place, catalogue_of, model):
    place.file.write_bytes(model)
    locate("tiny", catalogue=catalogue_of())
    place.file.with_name("tiny.gguf.verified").write_text('{"size": 30')
    assert not place.known_good()
    assert locate("tiny", catalogue=catalogue_of()) == place.file


def test_remove_leaves_nothing_but_the_lock(place, catalogue_of, model):
    place.file.write_bytes(model)
    locate("tiny", catalogue=catalogue_of())
    place.partial.write_bytes(b"x")
    place.wheels.mkdir()
    assert remove("tiny", catalogue=catalogue_of())
    assert [path.name for path in directory().iterdir()] == ["tiny.gguf.lock"]
    assert not remove("tiny", catalogue=catalogue_of())


def test_remove_does_not_disturb_a_pull(place, catalogue_of):
    place.partial.write_bytes(b"x")
    with place.try_lock(), pytest.raises(ModelFileError, match="another process is pulling"):
        remove("tiny", catalogue=catalogue_of())
    assert place.partial.exists()
