"""What is compared: ways to ask one model for calls, each a set of facts above those of its profile.

A variant is written as words with blanks between them: `FACT=VALUE`, or the name of a row of `PRESETS`. Alternatives
stand between bars, and every combination of them is a variant: `mode=native|validated dialect=json|hermes` are four.

Laws: every variant has facts that the model's profile takes; no two of a matrix ask in the same way, so nothing is
measured twice.
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
"""The name of the variant that adds no facts: what Callboard picks by itself."""
ALL: Final = "all"
"""The word for the matrix of all presets."""
FIT: Final = "gate_threshold=fit"
"""The word for the threshold that solves most of the tasks."""
MAX_VARIANTS: Final = 64
"""Combinations of one comparison: more are a mistake of the shell, or days of work."""

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
"""Facts by a word that stands for them."""
FITTED: Final = tuple([f"{name} {FIT}" if "gate" in facts else name for name, facts in PRESETS.items()])
"""All presets, those with a gate at the threshold that fits the model."""


class Variant(msgspec.Struct, frozen=True):
    """One way to ask: its name in reports, and the facts that it adds to the profile."""

    name: str
    facts: Mapping[str, Any] = {}
    fits_threshold: bool = False
    """Every call passes and is scored, and `fit_thresholds` finds the threshold afterwards."""


def make_variants(model: str, texts: Iterable[str], user: Mapping[str, Any] | None = None) -> tuple[Variant, ...]:
    """Make the variants of a model.

    Args:
        model: The model's name.
        texts: Variants as a person writes them; `all` stands for every preset. None at all is the default alone.
        user: The user's own facts of the model, which a variant's go above.

    Returns:
        The variants in their order, without those that ask as an earlier one does.

    Raises:
        CallerError: A word is no preset, or a fact or its value is not one of a profile; or there are too many.
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
    """Facts on one line, as `--profile` takes them."""
    return " ".join([f"{fact}={msgspec.json.encode(value).decode()}" for fact, value in facts.items()])


def _expand(text: str) -> list[Variant]:
    """Every combination of the alternatives of a text."""
    if text.strip() == ALL:
        return [Variant(name, facts) for name, facts in PRESETS.items()]
    words = [word.split("|") for word in text.split()]
    if not words:
        raise CallerError(
            "a variant is empty", path="--variants", hint=f"write FACT=VALUE, or one of {', '.join((*PRESETS, ALL))}"
        )
    count = 1
    for alternatives in words:
        count *= len(alternatives)
        if count > MAX_VARIANTS:
            raise CallerError("too many combinations", path="--variants", hint=f"at most {MAX_VARIANTS}")
    return [_combine(_complete(words, choice)) for choice in product(*words)]


def _complete(words: Sequence[Sequence[str]], choice: Sequence[str]) -> list[str]:
    """The chosen words, with the fact's name in front of those that are only another value."""
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
    """What is asked for in this variant. Raises CallerError where its facts are none."""
    resolution = resolve(model, {**user, **variant.facts})
    return msgspec.structs.replace(resolution.profile, mode=resolution.mode), make_plan(resolution)
