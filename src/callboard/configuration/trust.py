"""The allow-list of what an untrusted project's file may set; other keys are ignored.

Law: a file that is merged by this table permits nothing that the user's own settings do not permit. Lists of denied calls
and of calls to ask about grow, limits sink, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from callboard.configuration.coding import CHAT_ROUNDS
from callboard.errors import CallerError
from callboard.profiles import model_names
from callboard.tools.descriptors import Keys

ANY: Final = "*"
"""Matches any one key in a path of the table."""


class Restriction(NamedTuple):
    """How a project's value is merged with the user's; `meaning` describes it in the documentation."""

    meaning: str
    join: Callable[[Any, Any], Any]


class RestrictedValues(NamedTuple):
    """The merged values, and the keys of the project's file that had no effect."""

    values: dict[str, Any]
    ignored: tuple[Keys, ...]


def _take_fewer_runs(users: int | None, projects: int) -> int:
    # Without a limit a turn of a chat has this one; the phases of a job have limits of their own.
    return min(projects, CHAT_ROUNDS if users is None else users)


def _take_lower_budget(users: float | None, projects: float) -> float:
    return projects if users is None else min(users, projects)


def _keep_known_models(users: str, projects: str) -> str:
    """Prompts go only where the user's own settings send them: each model's name must be literally one of theirs."""
    try:
        known = model_names(users)
        return projects if all(name in known for name in model_names(projects)) else users
    except CallerError:
        return users


NAMED: Final = Restriction("only a model that your own settings name", _keep_known_models)
LOWER: Final = Restriction("the lower value wins", min)
ADDED: Final = Restriction("added to yours", lambda users, projects: (*(users or ()), *projects))
ONLY_TRUE: Final = Restriction("only `true`", lambda users, projects: users or projects)

RESTRICTING: Final[Mapping[Keys, Restriction]] = {
    ("model",): NAMED,
    ("max_rounds",): LOWER,
    ("budget",): Restriction(LOWER.meaning, _take_lower_budget),
    ("permissions", "deny"): ADDED,
    ("permissions", "ask"): ADDED,
    ("coding", "limits", "max_task_duration_minutes"): LOWER,
    ("coding", "limits", "max_inference_runs"): Restriction(LOWER.meaning, _take_fewer_runs),
    ("coding", "limits", "command_seconds"): LOWER,
    ("coding", "limits", "command_memory_mb"): LOWER,
    ("coding", "limits", "command_processes"): LOWER,
    ("coding", "git", "always_draft_pr"): ONLY_TRUE,
    ("coding", "tools", "forbidden_commands"): ADDED,
    ("coding", "modes", ANY, "deny"): ADDED,
}
"""All that an untrusted project's file may set, and how it is merged."""


def find_restriction(keys: Keys) -> Restriction | None:
    """How an untrusted project's value for these keys is merged; None if it is ignored."""
    return next((restriction for pattern, restriction in RESTRICTING.items() if _matches(pattern, keys)), None)


def restrict(users: Mapping[str, Any], projects: Mapping[str, Any]) -> RestrictedValues:
    """Merge an untrusted project's values with the user's.

    Args:
        users: All of the user's values, defaults included, as plain mappings.
        projects: The values in the project's file, of the kinds that the keys have.
    """
    values, ignored = dict(users), list[Keys]()
    for keys, value in _iterate_values(projects):
        rule, before = find_restriction(keys), _get(users, keys)
        if rule is None:
            ignored.append(keys)
            continue
        joined = rule.join(before, value)
        if joined == before != value:
            ignored.append(keys)
        values = _replace(values, keys, joined)
    return RestrictedValues(values, tuple(ignored))


def _iterate_values(table: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The non-empty values of a file by their keys. A table in which nothing may be set counts as one value."""
    for key, value in table.items():
        keys = (*above, key)
        leads_on = any(_matches(pattern[: len(keys)], keys) for pattern in RESTRICTING if len(pattern) > len(keys))
        if isinstance(value, Mapping) and leads_on:
            yield from _iterate_values(value, keys)
        elif value not in ((), [], {}):
            yield keys, value


def _matches(pattern: Keys, keys: Keys) -> bool:
    return len(pattern) == len(keys) and all(part in {ANY, key} for part, key in zip(pattern, keys, strict=True))


def _get(values: Any, keys: Keys) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _replace(values: Mapping[str, Any], keys: Keys, value: Any) -> dict[str, Any]:
    """The values with another one for these keys."""
    first, *rest = keys
    inner = _replace(values.get(str(first)) or {}, tuple(rest), value) if rest else value
    return {**values, str(first): inner}
