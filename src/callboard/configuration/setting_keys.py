"""The table of all keys of `callboard.toml`: types, defaults, variables and flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from callboard.configuration.coding import CodingSettings
from callboard.configuration.jobs import JobSettings
from callboard.loop import Limits
from callboard.profiles import Prices
from callboard.telemetry.turn_on import TelemetrySettings
from callboard.tools import Policy

Strings: TypeAlias = tuple[str, ...]


class SettingKey(msgspec.Struct, frozen=True):
    """A key; `kind` is the type of its value. Whether an untrusted project may set it says `configuration.trust`."""

    name: str
    kind: Any
    default: Any
    meaning: str
    variable: str = ""
    flag: str = ""


class Permissions(msgspec.Struct, frozen=True):
    """Patterns of tools, as in a Policy. Where several match, `deny` wins over `ask`, and `ask` over `allow`."""

    allow: Strings = ()
    deny: Strings = ()
    ask: Strings = ()

    @property
    def policy(self) -> Policy:
        return Policy(
            [
                *((pattern, "allow") for pattern in self.allow),
                *((pattern, "ask") for pattern in self.ask),
                *((pattern, "deny") for pattern in self.deny),
            ]
        )


KEYS = (
    SettingKey("model", str, "local:qwen2.5-coder-0.5b", "the model", "CALLBOARD_MODEL", "--model"),
    SettingKey("base_url", str, "", "the URL of its endpoint", "CALLBOARD_BASE_URL", "--base-url"),
    SettingKey(
        "mode",
        Literal["", "native", "structured", "validated", "parsed"],
        "",
        "how calls are asked for; empty leaves it to the model's profile",
        "CALLBOARD_MODE",
        "--mode",
    ),
    SettingKey(
        "dialect",
        str,
        "",
        "how calls are spelled in text; empty leaves it to the model's profile",
        "CALLBOARD_DIALECT",
        "--dialect",
    ),
    SettingKey(
        "max_rounds",
        Annotated[int, msgspec.Meta(ge=1)],
        Limits().rounds,
        "replies of a run; the last one is asked for without tools",
        "CALLBOARD_MAX_ROUNDS",
        "--max-rounds",
    ),
    SettingKey(
        "budget",
        Annotated[float, msgspec.Meta(gt=0)] | None,
        None,
        "US dollars that a run, a job or a chat may cost",
        "CALLBOARD_BUDGET",
        "--budget",
    ),
    SettingKey("tools", Strings, (), "Python tools: `module:attribute` or `file.py`", "", "--tools"),
    SettingKey("ensembles", Strings, (), "directories of ensembles, or built-in ones", "", "--ensembles"),
    SettingKey("mcp", dict[str, dict[str, Any]], {}, "MCP servers, by name"),
    SettingKey("instructions", str, "", "what the model is told before the prompt", "CALLBOARD_INSTRUCTIONS"),
    SettingKey("profiles", dict[str, dict[str, Any]], {}, "facts of models, by pattern"),
    SettingKey("prices", dict[str, Prices], {}, "what a million tokens cost in US dollars, by patterns of models"),
    SettingKey("permissions", Permissions, Permissions(), "which calls may run: `allow`, `deny`, `ask`"),
    SettingKey("coding", CodingSettings, {}, "the coding agents"),
    SettingKey("jobs", JobSettings, JobSettings(), "durable jobs; in your own file only"),
    SettingKey(
        "telemetry", TelemetrySettings, TelemetrySettings(), "where spans and metrics go; in your own file only"
    ),
    SettingKey("trusted", Strings, (), "directories of projects that you trust; in your own file only"),
)
BY_NAME: Mapping[str, SettingKey] = {key.name: key for key in KEYS}
