"""The settings of one MCP server: the keys of `[mcp.NAME]` in `callboard.toml`, its environment, its files of state,
and the meaning of `stdio://` and `https://` addresses.

Two projects may each have a server `db`, and a name may belong to another program later. A state file therefore belongs
to a name and a program or URL.
Law: a server's program gets only the environment variables that are named.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Literal
from urllib.parse import quote, unquote, urlsplit

import msgspec

from callboard.errors import CallerError
from callboard.programs import absolute_search_path

_LAUNCHERS: Final = re.compile(
    r"python[\d.]*|pypy[\d.]*|node|npx|npm|bunx?|deno|uvx?|pipx|poetry|docker|podman|env|sh|bash|cmd|run|exec|x|dlx|tool"
)
"""Programs that start other programs, and their commands that do so."""
_IS_CODE: Final = re.compile(r"[\s()]")
_IS_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_IS_ADDRESS: Final = re.compile(r"localhost|[\d.]+|.*:.*")
_SUFFIXES: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".exe", ".sh", ".cmd", ".bat"})
_GENERIC_WORDS: Final = frozenset(
    {"index", "main", "__main__", "app", "cli", "src", "dist", "build", "bin", "lib", "mcp", "sse", "api", "www", "v1"}
    | {"server", "/", ".", ".."}
)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME: Final = 64
Exposed = Literal["tools", "resources", "prompts"]
Protocol = Literal["auto", "legacy", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach the server `name`, and which of its features are used. All times are in seconds.

    `command` is its program with arguments, or `url` its address. It is used only if it is `enabled`.
    """

    name: str
    transport: Literal["stdio", "http"] = "stdio"
    """`stdio` starts the program `command`; `http` connects to the server at `url`."""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    """Environment variables of the program. `env:NAME` copies the value of one of ours."""
    inherit: tuple[str, ...] = ()
    """Names of our environment variables that the program gets, in addition to the ones every program needs."""
    directory: str = ""
    """The program's working directory."""
    url: str = ""
    headers: Mapping[str, str] = {}
    """Headers of every request; `env:NAME` as in `environment`."""
    client_id: str = ""
    """The OAuth client that was registered at the server, for servers without automatic registration."""
    client_secret: str = ""
    """Secret of the OAuth client. `env:NAME` as in `environment`."""
    scopes: tuple[str, ...] = ()
    """OAuth scopes to request instead of those that the server names."""
    enabled: bool = True
    required: bool = False
    """True if a failure of this server fails all servers that are connected together."""
    pinned: bool = True
    """True if tools that changed since their first use wait for the user's consent."""
    search: bool | None = None
    """True if models must search for the tools. None searches if there are too many tools to declare."""
    connect_timeout: float = 30.0
    """Seconds until the handshake must be done."""
    idle_timeout: float = 60.0
    """Maximum seconds of a call without a sign of life, such as progress."""
    timeout: float = 600.0
    """Maximum seconds of a whole call."""
    idempotent: tuple[str, ...] = ()
    """Tools (patterns as in file names) whose calls may be repeated after a lost connection."""
    expose: tuple[Exposed, ...] = ("tools",)
    """Features of the server that become tools."""
    tools: tuple[str, ...] = ("*",)
    """Name patterns of tools to offer (patterns as in file names)."""
    exclude: tuple[str, ...] = ()
    """Name patterns of tools to exclude."""
    sampling: bool = False
    """True if the server may ask the run's model."""
    protocol: Protocol = "auto"
    """`auto` detects the protocol of the server."""
    result_bytes: int = 32 * 1024
    """Some 8,000 tokens of English: a model with a context of 32,000 survives two of them. The rest can be read on."""
    description_bytes: int = 4096
    """Maximum bytes of a server's description. The rest is cut off."""


PASSED_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Variables that the SDK passes to a server too."""
_PREFIX: Final = "env:"


def build_environment(settings: ServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """All variables of a server's program; of PATH only the absolute directories.

    Raises:
        CallerError: A variable that `env:NAME` refers to is not set.
    """
    passed = {name: environ[name] for name in (*PASSED_VARIABLES, *settings.inherit) if name in environ}
    if "PATH" in passed:
        passed["PATH"] = absolute_search_path(passed["PATH"])
    return passed | resolve_variables(settings.environment, environ, f"mcp.{settings.name}.environment")


def resolve_variables(values: Mapping[str, str], environ: Mapping[str, str], path: str) -> dict[str, str]:
    """Replace each `env:NAME` by the variable's value. Raises CallerError for a variable that is not set."""
    return {name: _resolve_variable(value, environ, f"{path}.{name}") for name, value in values.items()}


def _resolve_variable(value: str, environ: Mapping[str, str], path: str) -> str:
    if not value.startswith(_PREFIX):
        return value
    name = value.removeprefix(_PREFIX)
    if name not in environ:
        raise CallerError(f"{name} is not set in the environment", path=path, hint=f"export {name}=…")
    return environ[name]


_DIGITS: Final = 12
_LONGEST: Final = 200
"""Bytes that a server's name may take in a file's name; file systems allow 255."""


def identity_hash(settings: ServerSettings) -> str:
    """A hash of the server's URL, or of its command and working directory.

    A word of the command that is a file counts with its whole path: `python server.py` is another program in another
    directory, and `npx -y @scope/server` is the same everywhere.
    """
    directory = Path(settings.directory or ".").absolute()
    words = [str(directory / word) if _is_file(directory / word) else word for word in settings.command]
    facts = [settings.url] if settings.transport == "http" else [str(directory) if settings.directory else "", *words]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGITS]


def file_name(name: str) -> str:
    """Encode a server's name for a file's name, without suffix. Raises CallerError if it is too long."""
    quoted = quote(name, safe=" ")
    if not quoted or len(quoted) > _LONGEST:
        raise CallerError("a server's name has 1 to some 60 characters", path=name[:64])
    return quoted


def state_file(directory: Path, settings: ServerSettings) -> Path:
    """The file of this server in a directory. Raises CallerError for a name that is too long for one."""
    return directory / f"{file_name(settings.name)}~{identity_hash(settings)}.json"


def find_state_files(directory: Path, name: str) -> list[Path]:
    return [*directory.glob(f"{file_name(name)}~{'?' * _DIGITS}.json")]


def server_name(path: Path) -> str:
    """The name of the server that a state file belongs to."""
    return unquote(path.stem.rpartition("~")[0] or path.stem)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # an argument that is no path, such as Python code
        return False


def parse_address(address: str, *, name: str = "", **settings: Any) -> ServerSettings:
    """Return the settings of the server at `address`, with a `name` and other `settings`. Raises CallerError."""
    scheme, separator, rest = address.partition("://")
    if separator and scheme == "stdio":
        try:
            command = shlex.split(rest)
        except ValueError as error:
            raise CallerError(f"not a command: {error}", path=address) from None
        if not command:
            raise CallerError("no program", path=address, hint="write stdio://program argument")
        facts: dict[str, Any] = {"transport": "stdio", "command": command, "name": name_of_command(command)}
    elif separator and scheme in ("http", "https"):
        if not urlsplit(address).hostname:
            raise CallerError("no host", path=address)
        facts = {"transport": "http", "url": address, "name": _name_of_url(address)}
    else:
        raise CallerError("not a server's address", path=address, hint="write stdio://program or https://host/mcp")
    try:
        return msgspec.convert({**facts, **settings, **({"name": name} if name else {})}, ServerSettings)
    except msgspec.ValidationError as error:
        raise CallerError(str(error), path=address) from None


def name_of_command(command: Sequence[str]) -> str:
    """Name a server after its command: not after the launcher, as `npx` or `python -m`, but after the program."""
    words = [*command]
    while words and (
        _LAUNCHERS.fullmatch(_stem(words[0])) or words[0].startswith("-") or _IS_ASSIGNMENT.match(words[0])
    ):
        words = words[1:]
    if not words or _IS_CODE.search(words[0]):
        return _stem(command[0])
    path = PurePath(words[0])
    meaningful = [part for part in (_stem(path.name), *reversed(path.parts[:-1])) if part.lower() not in _GENERIC_WORDS]
    return _to_name(meaningful[0] if meaningful else _stem(path.name)) or _stem(command[0])


def _name_of_url(url: str) -> str:
    """The host without generic words, and the parts of the path that tell two servers of a host apart."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    labels = [host] if _IS_ADDRESS.fullmatch(host) else [each for each in host.split(".") if each not in _GENERIC_WORDS]
    named = labels[:-1] if len(labels) > 1 else labels
    path = [each for each in parts.path.split("/") if each and each.lower() not in _GENERIC_WORDS]
    port = [str(parts.port)] if parts.port else []
    return _to_name("-".join([*named, *port, *path])) or _to_name(host)


def _stem(word: str) -> str:
    """The last part of a path without its suffix, or of a package without its version."""
    name = PurePath(word).name.rpartition("@")[0] or PurePath(word).name
    return PurePath(name).stem if PurePath(name).suffix in _SUFFIXES else name.partition(":")[0]


def _to_name(name: str) -> str:
    """A name of allowed length, of characters that need no quoting in a file's name or a shell."""
    return _UNFIT.sub("-", name).strip("-.")[:_MAX_NAME]
