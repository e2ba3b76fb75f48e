"""Load settings: defaults < the user's file < the project's file < environment < flags.

A project's file may come from a stranger. A file that the user does not trust is merged by the allow-list in
`configuration.trust`. A file that other users can write is not read.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from callboard.configuration.coding import CodingSettings, merge_tables
from callboard.configuration.import_by_name import ensemble_file
from callboard.configuration.jobs import JobSettings
from callboard.configuration.mcp import DescribedServer, read_servers
from callboard.configuration.ownership import find_unsafe_owner
from callboard.configuration.toml import Document, read_document
from callboard.configuration.trust import restrict
from callboard.errors import CallerError
from callboard.loop import Limits
from callboard.profiles import Prices, Profile, facts_for, prices_for
from callboard.profiles.remarks import merge_rows, remark_kind, select_facts
from callboard.telemetry.turn_on import TelemetrySettings
from callboard.tools import Policy
from callboard.tools.descriptors import Where, below, convert, convert_table, dotted_path, refuse_unknown

Strings: TypeAlias = tuple[str, ...]


class SettingKey(msgspec.Struct, frozen=True):
    """A key; `kind` is its value's type. `configuration.trust` lists keys that an untrusted project may set."""

    name: str
    kind: Any
    default: Any
    meaning: str
    variable: str = ""
    flag: str = ""


class Permissions(msgspec.Struct, frozen=True):
    """Patterns of tools, as in a Policy. `deny` wins over `ask`, and `ask` over `allow`."""

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
    SettingKey("base_url", str, "", "URL of its endpoint", "CALLBOARD_BASE_URL", "--base-url"),
    SettingKey(
        "mode",
        Literal["", "native", "structured", "validated", "parsed"],
        "",
        "how calls are requested; empty takes the profile's",
        "CALLBOARD_MODE",
        "--mode",
    ),
    SettingKey(
        "dialect",
        str,
        "",
        "format of calls in text; empty takes the profile's",
        "CALLBOARD_DIALECT",
        "--dialect",
    ),
    SettingKey(
        "context",
        Annotated[int, msgspec.Meta(ge=0)],
        0,
        "tokens that the model may read; 0 takes the profile's, or a local model's window",
        "CALLBOARD_CONTEXT",
        "--context",
    ),
    SettingKey(
        "effort",
        Literal["", "none", "minimal", "low", "medium", "high", "xhigh", "max"],
        "",
        "how much a model thinks; empty leaves it to the model",
        "CALLBOARD_EFFORT",
        "--effort",
    ),
    SettingKey(
        "max_rounds",
        Annotated[int, msgspec.Meta(ge=1)],
        Limits().rounds,
        "maximum replies of a run; the last one is without tools",
        "CALLBOARD_MAX_ROUNDS",
        "--max-rounds",
    ),
    SettingKey(
        "budget",
        Annotated[float, msgspec.Meta(gt=0)] | None,
        None,
        "maximum cost of a run, a job or a chat, in US dollars",
        "CALLBOARD_BUDGET",
        "--budget",
    ),
    SettingKey("tools", Strings, (), "Python tools: `module:attribute` or `file.py`", "", "--tools"),
    SettingKey("ensembles", Strings, (), "directories of toolsets, or built-in ones", "", "--ensembles"),
    SettingKey("mcp", dict[str, dict[str, Any]], {}, "MCP servers, by name"),
    SettingKey("instructions", str, "", "system message", "CALLBOARD_INSTRUCTIONS"),
    SettingKey("profiles", dict[str, dict[str, Any]], {}, "facts about models, by pattern"),
    SettingKey("prices", dict[str, Prices], {}, "prices of a million tokens in US dollars, by pattern"),
    SettingKey("permissions", Permissions, Permissions(), "which calls may run: `allow`, `deny`, `ask`"),
    SettingKey("coding", CodingSettings, {}, "the coding agents"),
    SettingKey("jobs", JobSettings, JobSettings(), "durable jobs; in your own file only"),
    SettingKey(
        "telemetry", TelemetrySettings, TelemetrySettings(), "where spans and metrics go; in your own file only"
    ),
    SettingKey("trusted", Strings, (), "directories of projects that you trust; in your own file only"),
)
BY_NAME: Mapping[str, SettingKey] = {key.name: key for key in KEYS}
CODING_MODEL: Final = "local:qwen2.5-coder-1.5b"
"""Default model of the coding agents. The smaller default of the other commands calls tools, but fixes no bugs."""


FILE_NAME: Final = "callboard.toml"

_USERS_ALONE: Final[Mapping[str, str]] = {
    "trusted": "a project cannot trust itself",
    "jobs": "a project cannot configure your jobs",
    "telemetry": "a project cannot configure your telemetry",
}
"""Keys that no project's file may have, with their errors."""


class Settings(msgspec.Struct, frozen=True):
    """The value of every key of `KEYS`; `sources` holds the source of each.

    The keys are `model`, `base_url`, `mode`, `dialect`, `context`, `effort`, `max_rounds`, `budget`, `tools`, `ensembles`, `mcp`,
    `instructions`, `profiles`, `prices`, `permissions`, `coding`, `jobs`, `telemetry` and `trusted`. `notices` list the
    ignored values of a project's file, with the reason and a hint.
    """

    model: str
    base_url: str
    mode: str
    dialect: str
    context: int
    effort: str
    max_rounds: int
    budget: float | None
    tools: tuple[str, ...]
    ensembles: tuple[str, ...]
    mcp: Mapping[str, DescribedServer]
    instructions: str
    profiles: Mapping[str, Mapping[str, Any]]
    prices: Mapping[str, Prices]
    permissions: Permissions
    coding: CodingSettings
    jobs: JobSettings
    telemetry: TelemetrySettings
    trusted: tuple[str, ...]
    sources: Mapping[str, str]
    notices: tuple[str, ...] = ()

    def profile(self, model: str) -> dict[str, Any]:
        """Return the facts and prices of all patterns that match the name `model`. A longer pattern wins.

        A `context` overrides the `context_tokens` of the patterns, and an `effort` theirs.
        """
        facts = {**facts_for(model, self.profiles), **prices_for(model, self.prices)}
        own = {"context_tokens": self.context, "effort": self.effort}
        return facts | {fact: value for fact, value in own.items() if value}

    @property
    def policy(self) -> Policy:
        """The permissions as a Policy."""
        return self.permissions.policy


def load_settings(flags: Mapping[str, Any], cwd: Path, environ: Mapping[str, str]) -> Settings:
    """Return the settings of a command.

    Args:
        flags: Values of the command line by key. None and empty values count as not set.
        cwd: The directory where the command runs.
        environ: The environment.

    Raises:
        CallerError: A value is wrong. The error has the file, line and key, or the variable's name.
    """
    values: dict[str, Any] = {key.name: key.default for key in KEYS}
    sources = dict.fromkeys(values, "default")
    notices: list[str] = []
    user_path = user_file(environ)
    if user_path.is_file():
        _merge_file(_validate(read_document(user_path, CallerError)), user_path, values, sources)
    if path := _find_project_file(cwd, user_path, values["trusted"], notices):
        document = read_document(path, CallerError)
        values_here = _validate(document)
        for name, message in _USERS_ALONE.items():
            if name in values_here:
                raise CallerError(message, path=document.where((name,)), hint=f"write it in {user_path}")
        if _is_trusted(path, values["trusted"]):
            _merge_file(values_here, path, values, sources)
        else:
            notices += _merge_untrusted(values_here, path, values, sources)
    for key in KEYS:
        if key.variable and (text := environ.get(key.variable, "")):
            values[key.name] = convert(key.kind, text, _at_variable(key.variable), CallerError)
            sources[key.name] = key.variable
    for name, flag in flags.items():
        if flag:
            values[name] = tuple(flag) if isinstance(flag, list) else flag
            sources[name] = BY_NAME[name].flag
    values["coding"] = msgspec.convert(values["coding"], CodingSettings)
    return Settings(**values, sources=sources, notices=tuple(notices))


def load_coding_settings(flags: Mapping[str, Any], cwd: Path, environ: Mapping[str, str]) -> Settings:
    """Load the settings of a coding agent. Its default model is the best that is installed and fits, else CODING_MODEL.

    Args:
        flags: As in `load_settings`.
        cwd: As in `load_settings`.
        environ: As in `load_settings`.

    Returns:
        The settings.

    Raises:
        CallerError: As in `load_settings`.
    """
    settings = load_settings(flags, cwd, environ)
    is_default = settings.sources["model"] == settings.sources["base_url"] == "default"
    if not is_default:
        return settings
    from callboard.providers.local.memory import read_memory  # noqa: PLC0415  # only without a model
    from callboard.providers.local.recommendation import installed_coding_model  # noqa: PLC0415

    return msgspec.structs.replace(settings, model=installed_coding_model(read_memory()) or CODING_MODEL)


def _at_variable(variable: str) -> Where:
    return lambda _: variable


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's file by `environ`.

    A relative XDG_CONFIG_HOME is ignored, as its specification requires.
    """
    home = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not home.is_absolute():
        home = Path(environ.get("HOME") or Path.home()) / ".config"
    return home / "callboard" / FILE_NAME


def _find_project_file(cwd: Path, user_path: Path, trusted: Sequence[str], notices: list[str]) -> Path | None:
    """Return the nearest file from `cwd` up to the repository's root; outside a repository, only in `cwd`.

    A file that others can write is skipped with a notice. So is a file that is only found through a `.git` that others
    can write.
    """
    above = [cwd, *cwd.parents]
    root = next((at for at, each in enumerate(above) if (each / ".git").exists()), 0)
    for each in above[: root + 1]:
        path = each / FILE_NAME
        if not path.is_file() or (user_path.is_file() and path.samefile(user_path)):
            continue
        is_trusted = _is_trusted(path, trusted)
        problem = find_unsafe_owner(path, trusted=is_trusted)
        if problem is None and each != cwd:
            problem = find_unsafe_owner(above[root] / ".git", trusted=is_trusted)
        if problem is None:
            return path
        notices.append(f"{path}: not read: {problem.reason}; {problem.hint}")
    return None


def _is_trusted(path: Path, trusted: Sequence[str]) -> bool:
    project = path.parent.resolve()
    return any(Path(each).resolve() == project for each in trusted)


def _merge_file(file_values: Mapping[str, Any], path: Path, values: dict[str, Any], sources: dict[str, str]) -> None:
    """Merge a file's values into the lower layers."""
    for name, value in file_values.items():
        merges = name in _MERGERS and sources[name] != "default"
        values[name] = _MERGERS[name](values[name], value) if merges else _resolve_paths(name, value, path.parent)
        sources[name] = f"{sources[name]}, {path}" if merges else str(path)


def _merge_untrusted(
    file_values: Mapping[str, Any], path: Path, values: dict[str, Any], sources: dict[str, str]
) -> Iterator[str]:
    """Let an untrusted project's values restrict the user's values. Yield a notice about ignored values."""
    users = {
        **values,
        "permissions": msgspec.to_builtins(values["permissions"]),
        "coding": msgspec.to_builtins(msgspec.convert(values["coding"], CodingSettings)),
    }
    projects = {
        name: msgspec.to_builtins(value) if name == "permissions" else value for name, value in file_values.items()
    }
    restricted = restrict(users, projects)
    for name in file_values:
        new = restricted.values[name]
        if new != users[name]:
            values[name] = msgspec.convert(new, Permissions) if name == "permissions" else new
            sources[name] = str(path) if sources[name] == "default" else f"{sources[name]}, {path}"
    if restricted.ignored:
        keys = ", ".join([dotted_path(each) for each in restricted.ignored])
        hint = f"to trust it, run: callboard trust {shlex.quote(str(path.parent.resolve()))}"
        yield f"{path}: without effect, because you do not trust this project: {keys}; {hint}"


def _validate(document: Document) -> dict[str, Any]:
    """Convert and check the values of a file."""
    where = document.where
    refuse_unknown(document.values, BY_NAME, where, CallerError)
    valid: dict[str, Any] = {}
    for name, value in document.values.items():
        kind, place = BY_NAME[name].kind, below(where, name)
        if name == "mcp":
            servers = read_servers(value, place, base=Path(document.path).parent, mistake=CallerError)
            valid[name] = {each.settings.name: each for each in servers}
            continue
        if name == "prices" and isinstance(value, Mapping):
            valid[name] = {
                each: convert_table(Prices, table, below(place, each), CallerError) for each, table in value.items()
            }
            continue
        to_kind = convert_table if kind is Permissions and isinstance(value, Mapping) else convert
        valid[name] = to_kind(kind, value, place, CallerError)
        if name == "coding":
            # Merge only the keys in this file, without defaults.
            valid[name] = _keep_given_keys(value, msgspec.to_builtins(valid[name]))
    for pattern, facts in valid.get("profiles", {}).items():
        convert_table(Profile, select_facts(facts), below(where, "profiles", pattern), CallerError)
        for key, remark in facts.items():
            if kind := remark_kind(key):
                convert(kind, remark, below(where, "profiles", pattern, key), CallerError)
    return valid


def _keep_given_keys(table: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the converted values of the table's keys, without defaults."""
    return {
        key: _keep_given_keys(value, whole[key]) if isinstance(value, Mapping) else whole[key]
        for key, value in table.items()
    }


def _merge_profiles(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    return {pattern: merge_rows(lower.get(pattern, {}), higher.get(pattern, {})) for pattern in {**lower, **higher}}


def _merge_permissions(lower: Permissions, higher: Permissions) -> Permissions:
    return Permissions(allow=lower.allow + higher.allow, deny=lower.deny + higher.deny, ask=lower.ask + higher.ask)


_MERGERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "mcp": lambda lower, higher: {**lower, **higher},
    "prices": lambda lower, higher: {**lower, **higher},
    "coding": merge_tables,
    "profiles": _merge_profiles,
    "permissions": _merge_permissions,
}
"""Keys whose values are merged over the files. For other keys the last file wins."""


def _resolve_paths(name: str, value: Any, directory: Path) -> Any:
    """Resolve relative paths in the value from the directory of its file."""
    match name:
        case "ensembles":
            return tuple(each if ensemble_file(each) else str(directory / Path(each).expanduser()) for each in value)
        case "tools":
            return tuple(
                str(directory / Path(each).expanduser()) if each.partition(":")[0].endswith(".py") else each
                for each in value
            )
        case "trusted":
            return tuple(str(directory / Path(each).expanduser()) for each in value)
        case _:
            return value
