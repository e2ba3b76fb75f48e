"""Recommend a model for the memory of this machine, from `recommended.toml` beside this module."""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Final

import msgspec

from callboard.providers.local.memory import Memory
from callboard.providers.local.model_files import Place, known_models

CONTEXT: Final = 32768
"""Tokens of context that a recommended model has room for: as much as coding agents need."""

TOO_SMALL: Final = frozenset({"smollm2-135m", "qwen2.5-coder-0.5b"})
"""Models that coding agents do not use by default."""


class RecommendedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model: `pull` is what `callboard models pull` takes, `size` is in bytes. `result` is a figure of `source`,
    which was read on `date`.
    """

    pull: str
    size: int
    token_bytes: int
    result: str
    source: str
    date: dt.date

    @property
    def name(self) -> str:
        """The name after `local:`."""
        return self.pull.rpartition("/")[2].removesuffix(".gguf")

    @property
    def need(self) -> int:
        """Memory of the file and the cache, in bytes."""
        return self.size + CONTEXT * self.token_bytes


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[RecommendedModel, ...]


@cache
def recommended_models() -> tuple[RecommendedModel, ...]:
    """Return the table, from the weakest model to the strongest."""
    from importlib.resources import files  # noqa: PLC0415  # costs 15 ms, on first use

    return msgspec.toml.decode(files(__package__).joinpath("recommended.toml").read_bytes(), type=_Table).models


def recommend(memory: Memory) -> RecommendedModel:
    """Return the strongest model that fits into the usable memory, or the smallest model if none fits."""
    models = recommended_models()
    return next((each for each in reversed(models) if each.need <= memory.usable), models[0])


def installed_coding_model(memory: Memory) -> str:
    """Return the strongest installed model for coding agents that fits into the usable memory, "" without one."""
    names = {each.name for each in known_models().models if Place(each).file.exists()}
    fitting = [each for each in recommended_models() if each.name in names and each.need <= memory.usable]
    return next((f"local:{each.name}" for each in reversed(fitting) if each.name not in TOO_SMALL), "")


def describe_too_small(model: str, memory: Memory) -> str:
    """Return what to expect of a model that is too small for coding agents, and the command for a better one."""
    name = model.partition(",")[0].strip().removeprefix("local:")
    if name not in TOO_SMALL:
        return ""
    better = recommend(memory)
    command = f" A better one: callboard models pull {better.pull}" if better.name not in TOO_SMALL else ""
    return f"{name} rarely fixes a bug: it fixed none of 10 small ones.{command}"
