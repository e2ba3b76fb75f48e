"""The controls of a request as generationConfig, encoded and decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import Controls
from callboard.wires.field_mapping import BUDGETS, effort_of
from callboard.wires.gemini.schema import GenerationConfig, ThinkingConfig

_FIELDS: Mapping[str, str] = {
    "maxOutputTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "seed": "seed",
}
_LEVELS: Mapping[str, str] = {
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}
_EFFORTS = {level: effort for effort, level in reversed(list(_LEVELS.items()))}


def encode_controls(controls: Controls, dropped: list[str], *, budgets: bool) -> dict[str, Any]:
    config = {name: value for name, ours in _FIELDS.items() if (value := getattr(controls, ours)) is not None}
    if controls.stop:
        config["stopSequences"] = list(controls.stop)
    if controls.effort is not None:
        thinking = _encode_effort(controls.effort, budgets=budgets)
        if thinking is None or _decode_effort(thinking) != controls.effort:
            dropped.append(f"effort {controls.effort}")
        if thinking is not None:
            config["thinkingConfig"] = thinking
    return config


def _encode_effort(effort: str, *, budgets: bool) -> dict[str, Any] | None:
    """The thinkingConfig of an effort, the nearest that there is; None for a word that is none."""
    if effort == "none":
        return {"thinkingBudget": 0}
    if effort not in _LEVELS:
        return None
    amount: dict[str, Any] = {"thinkingBudget": BUDGETS[effort]} if budgets else {"thinkingLevel": _LEVELS[effort]}
    return {"includeThoughts": True, **amount}


def _decode_effort(thinking: Mapping[str, Any]) -> str | None:
    """The effort that a thinkingConfig asks for; a budget of -1 leaves it to the model."""
    if (level := thinking.get("thinkingLevel")) is not None:
        return _EFFORTS.get(level.upper())
    if (budget := thinking.get("thinkingBudget")) is None or budget < 0:
        return None
    return effort_of(budget)


def decode_controls(generation: GenerationConfig, rest: dict[str, Any]) -> Controls:
    """The controls; what they say whole is no longer in `rest`."""
    for name in (*_FIELDS, "stopSequences"):
        rest.pop(name, None)
    effort = _pop_effort(generation.thinking_config, rest)
    return Controls(
        generation.temperature,
        generation.top_p,
        generation.max_output_tokens,
        generation.seed,
        tuple(generation.stop_sequences or ()),
        effort,
    )


def _pop_effort(thinking: ThinkingConfig | None, rest: dict[str, Any]) -> str | None:
    if thinking is None:
        return None
    effort = _decode_effort({"thinkingLevel": thinking.thinking_level, "thinkingBudget": thinking.thinking_budget})
    if effort is not None and any(
        rest["thinkingConfig"] == _encode_effort(effort, budgets=budgets) for budgets in (False, True)
    ):
        del rest["thinkingConfig"]
    return effort
