from __future__ import annotations

import re

import pytest
from tests.tables import table

from callboard.errors import NoSuchModel
from callboard.providers.local.model_files import Hub, Wheels, shipped_catalogue

ENTRIES = shipped_catalogue().models


@table("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_can_be_used(entry):
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", entry.name)
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.licence == "Apache-2.0"
    assert entry.context > 0
    assert [type(source) for source in entry.sources] == [Hub, Wheels]


@table("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_parts_make_up_the_file(entry):
    wheels = entry.sources[-1]
    assert len(wheels.requirements) == -(-entry.size // wheels.part_size)
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", requirement) for requirement in wheels.requirements)


def test_names_are_unique():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


@table(
    ("name", "hint"),
    [
        ("qwen2.5-coder", "did you mean qwen2.5-coder-1.5b or qwen2.5-coder-0.5b? "),
        ("smollm2", "did you mean smollm2-135m? "),
        ("§§§", ""),
    ],
)
def test_an_unknown_name_shows_the_nearest(name, hint):
    with pytest.raises(NoSuchModel) as caught:
        shipped_catalogue().find(name)
    assert str(caught.value) == f"no local model {name!r}; {hint}`callboard models list` shows all"
