"""Variants: ways to ask one model for calls. Each variant is a set of facts that override the model's profile.

A variant is written as words separated by spaces: `FACT=VALUE`, or the name of a preset in `PRESETS`. Bars separate
alternatives, and every combination is a variant: `mode=native|validated dialect=json|hermes` are four.

Laws: every variant has valid facts of a profile. No two variants of a matrix ask in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import msgspec

from callboard.errors import CallerError
from callboard.modes import Plan, make_plan
from callboard.profiles import Profile, resolve
from callboard.text.suggest import suggest

DEFAULT: Final = "default"
"""Name of the variant without facts, for Callboard's own choice."""
ALL: Final = "all"
"""The word for the matrix of all presets."""
FIT: Final = "gate_threshold=fit"
"""The word for the threshold that solves most of the tasks."""
MAX_VARIANTS: Final = 64
"""Maximum variants of one comparison. More are a mistake in the shell, or take days."""

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        DEFAULT: {},
        "native": {"mode": "native"},
        "structured": {"mode": "structured", "supports_json_schema": True},
        "validated": {"mode": "validated"},
        "json": {"mode": "validated", "dialect": "json"},
        "grounding": {"gate": "grounding"},
        "confidence": {"gate": "confidence"},
    }
)
"""Facts by the names of presets."""
FITTED: Final = tuple([f"{name} {FIT}" if "gate" in facts else name for name, facts in PRESETS.items()])
"""All presets. Presets with a gate fit its threshold to the model."""


class Variant(msgspec.Struct, frozen=True):
    """A way to ask a model: a name for reports, and facts that override the profile."""

    name: str
    facts: Mapping[str, Any] = {}
    fits_threshold: bool = False
    """True if every call is scored and passes, and `fit_thresholds` finds the threshold afterwards."""


def make_variants(model: str, texts: Iterable[str], user: Mapping[str, Any] | None = None) -> tuple[Variant, ...]:
    """Make the variants of a model.

    Args:
        model: The model's name.
        texts: Texts of variants. `all` means every preset. Without texts there is only the default.
        user: The user's own facts about the model. The facts of a variant override them.

    Returns:
        The variants in their order, without variants that ask in the same way as an earlier one.

    Raises:
        CallerError: A word is not a preset, a fact or its value is not valid, or there are too many variants.
    """
    variants = [variant for text in [*texts] or [DEFAULT] for variant in _expand(text)]
    if len(variants) > MAX_VARIANTS:
        raise CallerError(f"{len(variants)} variants are too many", path="--variants", hint=f"at most {MAX_VARIANTS}")
    distinct: list[tuple[tuple[Profile, Plan], Variant]] = []
    for variant in variants:
        identity = _identify(model, variant, user or {})
        if variant.fits_threshold and not identity[1].gate.kind:
            hint = f"name one too, such as 'gate=confidence {FIT}'"
            raise CallerError("there is no gate whose threshold could be fitted", path="--variants", hint=hint)
        if all(identity != other for other, _ in distinct):
            distinct.append((identity, variant))
    return tuple([variant for _, variant in distinct])


def describe_facts(facts: Mapping[str, Any]) -> str:
    """Return facts on one line, in the format of `--profile`."""
    return " ".join([f"{fact}={msgspec.json.encode(value).decode()}" for fact, value in facts.items()])


def _expand(text: str) -> list[Variant]:
    """Return every combination of the alternatives in a text."""
    if text.strip() == ALL:
        return [Variant(name, facts) for name, facts in PRESETS.items()]
    words = [word.split("|") for word in text.split()]
    if not words:
        raise CallerError(
            "a variant is empty", path="--variants", hint=f"write FACT=VALUE, or one of {', '.join((*PRESETS, ALL))}"
        )
    if math.prod(map(len, words)) > MAX_VARIANTS:
        raise CallerError("too many combinations", path="--variants", hint=f"at most {MAX_VARIANTS}")
    return [_combine(_complete(words, choice)) for choice in product(*words)]


def _complete(words: Sequence[Sequence[str]], choice: Sequence[str]) -> list[str]:
    """Return the chosen words. Add the fact's name to words that are only a value."""
    return [
        each if "=" in each or "=" not in alternatives[0] else f"{alternatives[0].partition('=')[0]}={each}"
        for alternatives, each in zip(words, choice, strict=True)
    ]


def _combine(words: Sequence[str]) -> Variant:
    facts: dict[str, Any] = {}
    for word in words:
        facts |= {"gate_threshold": -math.inf} if word == FIT else _read_word(word)
    return Variant(" ".join(words), facts, fits_threshold=FIT in words)


def _read_word(word: str) -> Mapping[str, Any]:
    fact, equals, value = word.partition("=")
    if not equals:
        if word not in PRESETS:
            raise CallerError(f"no variant {word!r}", path="--variants", hint=suggest(word, (*PRESETS, ALL)))
        return PRESETS[word]
    try:
        return {fact: msgspec.json.decode(value)}
    except msgspec.DecodeError:
        return {fact: value}


def _identify(model: str, variant: Variant, user: Mapping[str, Any]) -> tuple[Profile, Plan]:
    """Return the profile and the plan of a variant. Raises CallerError if its facts are not valid."""
    resolution = resolve(model, {**user, **variant.facts})
    return msgspec.structs.replace(resolution.profile, mode=resolution.mode), make_plan(resolution)
