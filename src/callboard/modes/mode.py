"""The four modes, as rows, and the plan that a profile turns a mode into."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from callboard.dialects import JSON, TOOL_COMMANDS, Dialect, dialect_of, either, get_dialect
from callboard.dialects.response_template import read_response_template
from callboard.errors import CallerError
from callboard.profiles import GateKind, ModeName, OnRepeatedCall, Pricing, Resolution
from callboard.profiles.prices import ListPrices


class Mode(msgspec.Struct, frozen=True):
    """The mode `name`.

    `declares` is the place of the tools; `dialect` is the dialect of calls, or "" for the profile's. `validated` says
    whether arguments are validated.
    """

    name: ModeName
    declares: Literal["wire", "constraint", "prompt"]
    dialect: str
    validated: bool


MODES: Mapping[str, Mode] = MappingProxyType(
    {
        mode.name: mode
        for mode in (
            Mode("native", "wire", "", validated=True),
            Mode("structured", "constraint", "action", validated=True),
            Mode("validated", "prompt", "", validated=True),
            Mode("parsed", "prompt", "json", validated=False),
        )
    }
)


class Gate(msgspec.Struct, frozen=True):
    """How a call is judged before it runs (see `modes.filters.gate`); the fields come from the profile."""

    kind: GateKind = ""
    threshold: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """How a model is asked, decided once before the first byte, by its `mode`.

    Calls in texts are written in `dialect`. Texts are searched for calls in `watched`, unless it is None. With
    `in_prose`, calls and results are plain words. These come from the Profile: `starts_in_reasoning`,
    `calls_in_reasoning`, `gate`, `answer_after`, `on_repeated_call`, `supports_json_schema`, `coding`,
    `context_tokens`, `max_tools` and `prices`.
    """

    mode: Mode
    dialect: Dialect = JSON
    watched: Dialect | None = None
    starts_in_reasoning: bool = False
    calls_in_reasoning: bool = False
    gate: Gate = Gate()
    in_prose: bool = False
    answer_after: Literal["model", "results"] = "model"
    on_repeated_call: OnRepeatedCall = "run"
    supports_json_schema: bool = False
    coding: Literal["phased", "short"] = "phased"
    context_tokens: int = 0
    max_tools: int = 0
    prices: Pricing | None = None


def get_mode(name: str) -> Mode:
    """Return the mode `name`. Raises CallerError if there is none."""
    if name not in MODES:
        raise CallerError(f"no mode {name!r}", hint=f"there are {', '.join(MODES)}")
    return MODES[name]


def make_plan(resolution: Resolution, mode: str = "", *, base_url: str = "") -> Plan:
    """Return the plan of a resolved model.

    Args:
        resolution: Facts about the model.
        mode: Overrides the model's own mode.
        base_url: Address of the server, if it is not the endpoint's own. The server sets the price.

    Raises:
        CallerError: There is no such mode.
    """
    row = get_mode(mode or resolution.mode)
    profile = resolution.profile
    own = read_response_template(profile.response_template) if profile.response_template and not row.dialect else None
    dialect = own or get_dialect(row.dialect or profile.dialect or "json")
    names = profile.watched
    if row.declares == "prompt" and resolution.sources["watch"] != "user":
        # Past calls that the model's own dialect cannot spell are written as JSON, and the model may imitate that.
        names = tuple(dict.fromkeys([*names, *(["json"] if names and "auto" not in names else [])]))
    watched = own or (dialect_of(names) if names and not row.dialect else None)
    if row.declares != "wire" and (watched is None or not watched.covers(dialect)):
        watched = dialect
    if row.declares == "prompt" and profile.fenced_commands and dialect.name != TOOL_COMMANDS.name:
        watched = either((watched, TOOL_COMMANDS))
    url = base_url or profile.base_url
    prices: Pricing | None = profile.prices
    # A server without a web address is not in the price list.
    if not prices and str(url).startswith("https://"):
        prices = ListPrices(url, resolution.model)
    return Plan(
        row,
        dialect,
        watched,
        starts_in_reasoning=profile.starts_in_reasoning,
        calls_in_reasoning=profile.calls_in_reasoning,
        gate=Gate(profile.gate, profile.gate_threshold),
        in_prose=profile.result_format == "prose",
        answer_after=profile.answer_after,
        on_repeated_call=profile.on_repeated_call,
        supports_json_schema=profile.supports_json_schema,
        coding=profile.coding,
        context_tokens=profile.context_tokens,
        max_tools=profile.max_tools,
        prices=prices,
    )


def get_plan(model: object) -> Plan:
    """Return the plan that `model` carries. The default is native mode without any filters."""
    carried = getattr(model, "plan", None)
    return carried if isinstance(carried, Plan) else Plan(MODES["native"])
