"""Settings: defaults < the user's file < the project's file < environment < flags.

Owns the layers, and what a project's file is trusted with: it is somebody else's, so what runs code, says
where prompts go or allows calls is only taken from projects that the user's own file lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.configuration.callables import ensemble_file
from callboard.configuration.coding import CodingSettings, guarded, joined
from callboard.configuration.keys import BY_NAME, GUARDED_FACTS, KEYS, Permissions
from callboard.configuration.mcp import DescribedServer, read_servers
from callboard.configuration.toml import Document, read_document
from callboard.errors import CallerError
from callboard.profiles import Profile, matches, normalise, providers, split_provider
from callboard.tools import Policy
from callboard.tools.descriptors import Keys, Where, below, converted, refuse_unknown

FILE: Final = "callboard.toml"


class Settings(msgspec.Struct, frozen=True):
    """What is set, for every key of `configuration.keys`; `sources` tells for each where."""

    model: str
    base_url: str
    mode: str
    max_rounds: int
    tools: tuple[str, ...]
    ensembles: tuple[str, ...]
    mcp: Mapping[str, DescribedServer]
    instructions: str
    profiles: Mapping[str, Mapping[str, Any]]
    permissions: Permissions
    coding: CodingSettings
    trusted: tuple[str, ...]
    sources: Mapping[str, str]

    def profile(self, model: str) -> dict[str, Any]:
        """The facts of all patterns that match the model's name; those of a longer pattern win."""
        plain = normalise(split_provider(model, providers())[1])
        facts: dict[str, Any] = {}
        for pattern in sorted(self.profiles, key=len):
            if matches(pattern.lower(), plain):
                facts |= self.profiles[pattern]
        return facts

    @property
    def policy(self) -> Policy:
        """The permissions as a Policy."""
        return self.permissions.policy


def load_settings(flags: Mapping[str, Any], cwd: Path, environ: Mapping[str, str]) -> Settings:
    """The settings for a command that runs in `cwd`; a flag that is None or empty is not set.

    Raises CallerError with file, line and key, or with the variable's name.
    """
    values: dict[str, Any] = {key.name: key.default for key in KEYS}
    sources = dict.fromkeys(values, "default")
    own = user_file(environ)
    for path in (own, _project_file(cwd, own)):
        if path is None or not path.is_file():
            continue
        document = read_document(path, CallerError)
        given = _checked(document)
        if path is not own:
            _refuse_untrusted(given, document, path, values["trusted"], own)
        for name, value in given.items():
            joins = name in _JOINED and sources[name] != "default"
            values[name] = _JOINED[name](values[name], value) if joins else _placed(name, value, path.parent)
            sources[name] = f"{sources[name]}, {path}" if joins else str(path)
    for key in KEYS:
        if key.variable and (text := environ.get(key.variable, "")):
            values[key.name] = converted(key.kind, text, _named(key.variable), CallerError)
            sources[key.name] = key.variable
    for name, flag in flags.items():
        if flag:
            values[name] = tuple(flag) if isinstance(flag, list) else flag
            sources[name] = BY_NAME[name].flag
    values["coding"] = msgspec.convert(values["coding"], CodingSettings)
    return Settings(**values, sources=sources)


def _named(variable: str) -> Where:
    return lambda _: variable


def user_file(environ: Mapping[str, str]) -> Path:
    """Where the user's file is. A relative XDG_CONFIG_HOME is ignored, as its specification says."""
    home = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not home.is_absolute():
        home = Path(environ.get("HOME") or Path.home()) / ".config"
    return home / "callboard" / FILE


def _project_file(cwd: Path, own: Path) -> Path | None:
    """The nearest file from the current directory up to the repository's root; outside of a repository, only here."""
    above = [cwd, *cwd.parents]
    root = next((at for at, each in enumerate(above) if (each / ".git").exists()), 0)
    for each in above[: root + 1]:
        path = each / FILE
        if path.is_file() and not (own.is_file() and path.samefile(own)):
            return path
    return None


def _checked(document: Document) -> dict[str, Any]:
    """The values of a file by key, each of its kind."""
    where = document.where
    refuse_unknown(document.values, BY_NAME, where, CallerError)
    given: dict[str, Any] = {}
    for name, value in document.values.items():
        kind, place = BY_NAME[name].kind, below(where, name)
        if name == "mcp":
            servers = read_servers(value, place, base=Path(document.path).parent, mistake=CallerError)
            given[name] = {each.settings.name: each for each in servers}
            continue
        if kind is Permissions and isinstance(value, Mapping):
            refuse_unknown(value, Permissions.__struct_fields__, place, CallerError)
        given[name] = converted(kind, value, place, CallerError)
        if name == "coding":
            given[name] = value  # each file says a part, which is whole when they are joined
    for pattern, facts in given.get("profiles", {}).items():
        place = below(where, "profiles", pattern)
        refuse_unknown(facts, Profile.__struct_fields__, place, CallerError)
        converted(Profile, facts, place, CallerError)
    return given


def _refuse_untrusted(
    given: Mapping[str, Any], document: Document, path: Path, trusted: tuple[str, ...], own: Path
) -> None:
    if "trusted" in given:
        raise CallerError(
            "no project says itself that it is trusted", path=document.where(("trusted",)), hint=f"write it in {own}"
        )
    project = path.parent.resolve()
    if any(Path(each).resolve() == project for each in trusted):
        return
    for keys in _guarded(given):
        raise CallerError(
            "a project's file may set this only if you trust the project",
            path=document.where(keys),
            hint=f'if you do, write trusted = ["{project}"] in {own}',
        )


def _guarded(given: Mapping[str, Any]) -> Iterator[Keys]:
    """The keys that would run code, send prompts and keys somewhere, or allow calls."""
    for name, value in given.items():
        # Some models are a file to load, or a program to run.
        runs = name == "model" and (value.endswith(".gguf") or value.startswith("command:"))
        if runs or BY_NAME[name].guarded:
            yield (name,)
        elif name == "permissions" and value.allow:
            yield (name, "allow")
        elif name == "coding":
            yield from ((name, *keys) for keys in guarded(value))
        elif name == "profiles":
            yield from ((name, pattern, fact) for pattern in value for fact in GUARDED_FACTS if fact in value[pattern])


def _join_profiles(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    return {pattern: {**lower.get(pattern, {}), **higher.get(pattern, {})} for pattern in {**lower, **higher}}


def _join_permissions(lower: Permissions, higher: Permissions) -> Permissions:
    return Permissions(allow=lower.allow + higher.allow, deny=lower.deny + higher.deny, ask=lower.ask + higher.ask)


_JOINED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "mcp": lambda lower, higher: {**lower, **higher},
    "coding": joined,
    "profiles": _join_profiles,
    "permissions": _join_permissions,
}
"""Keys of which every file is heard; of the others the last says all."""


def _placed(name: str, value: Any, directory: Path) -> Any:
    """The value, its relative paths taken from the directory of its file."""
    match name:
        case "ensembles":
            return tuple(each if ensemble_file(each) else str(directory / Path(each).expanduser()) for each in value)
        case "tools":
            return tuple(
                str(directory / Path(each).expanduser()) if each.partition(":")[0].endswith(".py") else each
                for each in value
            )
        case "trusted":
            return tuple(str(Path(each).expanduser()) for each in value)
        case _:
            return value
