"""Resolve a model's profile, with the source of each fact.

Layers, each overriding the ones before: default, family, model, endpoint, user.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.profiles.model_names import matches, normalise, split_provider
from callboard.profiles.profile import ModeName, Prices, Profile
from callboard.profiles.remarks import EVIDENCE, EXAMINED, Examination, merge_rows, remark_kind

_FACTS = Profile.__struct_fields__


class Resolution(msgspec.Struct, frozen=True):
    """The `profile` of the model `name`, decided before anything is sent.

    `provider` is the known provider before the colon ("" for none), and `model` the name on the wire. `sources` has the
    layer that set each fact, and `evidence` the reason for facts whose rows give one. `examined` is the backend in
    which the user's facts were found, if they name it.
    """

    name: str
    provider: str
    model: str
    profile: Profile
    sources: Mapping[str, str]
    evidence: Mapping[str, str] = {}
    examined: Examination | None = None

    @property
    def mode(self) -> ModeName:
        """The mode of the profile, or the one that its facts imply."""
        profile = self.profile
        if profile.mode:
            return profile.mode
        if profile.supports_tools and profile.uses_tools:
            return "native"
        return "structured" if profile.supports_json_schema else "validated"

    @property
    def mode_reason(self) -> str:
        """The reason for the mode, in words for people."""
        profile = self.profile
        if profile.mode:
            return f"set by {self.sources['mode']}"
        tools = (
            f"the endpoint {'offers' if profile.supports_tools else 'has no'} tools ({self.sources['supports_tools']})"
        )
        if self.mode == "native":
            return f"{tools}, and the model uses them ({self.sources['uses_tools']})"
        uses = "" if profile.uses_tools else f", the model is not known to use them ({self.sources['uses_tools']})"
        if profile.supports_json_schema:
            return f"{tools}{uses}; the endpoint constrains replies ({self.sources['supports_json_schema']})"
        return f"{tools}{uses}; the endpoint is not known to constrain replies ({self.sources['supports_json_schema']})"

    @property
    def watch_reason(self) -> str:
        """The reason for the dialects that the text is searched for."""
        source = self.sources["watch"]
        if source == "default":
            return "nothing is known about the model"
        return self.known_from("watch")

    def known_from(self, fact: str) -> str:
        """Return the layer that set the `fact`, with the evidence of its row."""
        evidence = self.evidence.get(fact)
        return f"{self.sources[fact]}: {evidence}" if evidence else self.sources[fact]


def resolve(name: str, user: Mapping[str, Any] | None = None) -> Resolution:
    """Return what is known about the model `name`; `user` has facts that override all others. Raises CallerError."""
    for fact in user or {}:
        if fact not in _FACTS and remark_kind(fact) is None:
            raise CallerError(f"no fact {fact!r}", path=f"profile of {name}", hint=f"there are {', '.join(_FACTS)}")
    table = _table()
    provider, model = split_provider(name, table["endpoints"])
    if not model:
        raise CallerError("the model's name is empty", path=name, hint="write it as provider:model or model")
    plain = normalise(model)
    layers = [
        *_family(plain, table["families"]),
        *_family(plain, table["thinking"]),
        *((f"model {row['name']}", row) for row in table["models"] if matches(row["name"], plain)),
    ]
    if provider:
        layers.append((f"endpoint {provider}", table["endpoints"][provider]))
    layers.append(("user", user or {}))
    facts: dict[str, Any] = {}
    sources = dict.fromkeys(_FACTS, "default")
    evidence: dict[str, str] = {}
    for source, row in layers:
        for fact, value in row.items():
            if fact in sources:
                facts[fact] = value
                sources[fact] = source
                evidence[fact] = row.get(f"{fact}{EVIDENCE}", "")
    known = {fact: text for fact, text in evidence.items() if text}
    try:
        profile = msgspec.convert(facts, Profile)
        examined = msgspec.convert((user or {}).get(EXAMINED), Examination | None)
    except msgspec.ValidationError as error:
        raise CallerError(str(error), path=f"profile of {name}") from None
    return Resolution(name, provider, model, profile, sources, known, examined)


def facts_for(model: str, profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the facts of all patterns of `profiles` that match the name `model`.

    Longer patterns override shorter ones. A pattern may include the provider, as in `openai:gpt-4o`, or be the whole
    name as it was given.
    """
    if not profiles:
        return {}
    provider, name = split_provider(model, providers())
    plain = normalise(name)
    facts: dict[str, Any] = {}
    for pattern in sorted(profiles, key=len):
        lower = pattern.lower()
        if lower == model.lower() or matches(lower.removeprefix(f"{provider}:"), plain):
            facts = merge_rows(facts, profiles[pattern])
    return facts


def prices_for(model: str, prices: Mapping[str, Prices]) -> dict[str, Any]:
    """Return the prices of the longest pattern of `prices` that matches the name `model`, as a fact, or nothing."""
    return facts_for(model, {pattern: {"prices": each} for pattern, each in prices.items()})


def providers() -> tuple[str, ...]:
    """Return the names of providers, which may precede the colon."""
    return tuple(_table()["endpoints"])


def is_of_host(model: str) -> bool:
    """Return whether one of the names in `model`, with commas between them, is a program or a file of this host."""
    names = [split_provider(each.strip(), providers()) for each in model.split(",")]
    return any(
        provider == "command" or (provider == "local" and ("/" in name or name.endswith(".gguf")))
        for provider, name in names
    )


def _family(model: str, families: list[dict[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    candidates = [(len(pattern), row) for row in families for pattern in row["patterns"] if matches(pattern, model)]
    if not candidates:
        return []
    row = max(candidates, key=lambda each: each[0])[1]
    return [(f"family {row['name']}", row)]


@cache
def _table() -> dict[str, Any]:
    """Return our rows and the rows of plug-ins (entry points `callboard.profiles`, mappings of the same form)."""
    import tomllib  # noqa: PLC0415
    from importlib.resources import files  # noqa: PLC0415 - they cost 15 ms, on first use

    table = tomllib.loads(files("callboard.profiles").joinpath("profiles.toml").read_text("utf-8"))
    for plugin in plugins("callboard.profiles"):
        table["endpoints"].update(plugin.get("endpoints", {}))
        for kind in ("families", "thinking", "models"):
            table[kind] += plugin.get(kind, [])
    return table
