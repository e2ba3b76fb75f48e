"""Read MCP servers from `[mcp.NAME]` tables, and from the `mcp.json` files of other clients.

Law: only variables of our environment that a server's table names get into its settings.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from callboard.configuration.toml import MAX_BYTES
from callboard.errors import CallerError, DescriptorError
from callboard.mcp.settings import ServerSettings
from callboard.text.suggest import suggest
from callboard.tools.descriptors import Keys, Where, below, convert, dotted_path, refuse_unknown

KEYS: Final = tuple(name for name in ServerSettings.__struct_fields__ if name != "name")
_POSITIVE: Final = ("connect_timeout", "idle_timeout", "timeout", "result_bytes", "description_bytes")
_REQUIRED_KEY: Final[Mapping[str, str]] = {"stdio": "command", "http": "url"}

_JSON_KEYS: Final = ("mcpServers", "servers")
_TYPES: Final[Mapping[str, str]] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
}
_FILTER_KEYS: Final[Mapping[str, str]] = {
    "tools": "tools",
    "exclude": "exclude",
    "includeTools": "tools",
    "excludeTools": "exclude",
}
"""Other clients' keys for selecting a server's tools, and our keys."""
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class DescribedServer(NamedTuple):
    """The `settings` of a server, the location of its description (`path`), and the `cli_options` with which `callboard
    mcp` finds it, or None.
    """

    settings: ServerSettings
    path: str
    cli_options: str | None = None

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.settings.name


def read_servers(
    tables: Any, where: Where = dotted_path, *, base: Path | None = None, mistake: type[CallerError] = DescriptorError
) -> list[DescribedServer]:
    """Return the servers in the tables of `[mcp]`.

    Args:
        tables: The tables by the servers' names.
        where: Tells the place of a key of `[mcp]`.
        base: The directory that a relative `directory` starts from.
        mistake: The exception to raise.
    """
    if not isinstance(tables, Mapping):
        raise mistake("not a table", path=where(()), hint="write [mcp.NAME]")
    return [_read_server(str(name), table, below(where, name), base, mistake) for name, table in tables.items()]


def load_mcp_json(path: str | Path, environ: Mapping[str, str] | None = None) -> list[DescribedServer]:
    """Return the servers of the `mcp.json` file `path`, as other clients write it: `{"mcpServers": {NAME: {...}}}`.

    The keys of a server are `command`, `args`, `env`, `cwd`, or `url`, `headers`; `type`, `disabled`; our own
    `protocol`, and `tools` and `exclude`, which others call `includeTools` and `excludeTools`. In all of them `${NAME}`
    is the value of a variable of `environ`, and `${NAME:-text}` has a default. Raises DescriptorError.
    """
    file = Path(path)
    text = _read(file)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise DescriptorError(f"not JSON: {error.msg}", path=f"{file}:{error.lineno}") from None
    except RecursionError:
        raise DescriptorError("not JSON: nested too deeply", path=str(file)) from None

    def where(keys: Keys) -> str:
        line = _find_line(text, keys)
        return f"{file}:{line}: {dotted_path(keys)}" if keys else str(file)

    key = next((each for each in _JSON_KEYS if isinstance(document, dict) and each in document), None)
    if key is None or not isinstance(document[key], dict):
        raise DescriptorError("no servers in it", path=str(file), hint='write {"mcpServers": {"name": {...}}}')
    variables = os.environ if environ is None else environ
    return [
        _read_server(
            name, _translate_entry(entry, below(where, key, name), variables), below(where, key, name), file.parent
        )._replace(cli_options=f" --mcp {shlex.quote(str(path))}")
        for name, entry in document[key].items()
    ]


def _read_server(
    name: str, table: Any, where: Where, base: Path | None, mistake: type[CallerError] = DescriptorError
) -> DescribedServer:
    if not isinstance(table, Mapping):
        raise mistake("not a table", path=where(()), hint=f"write [mcp.{name}]")
    if not name.isprintable() or not 0 < len(name) <= 64:
        raise mistake("a server's name has 1 to 64 characters that are seen", path=where(()))
    refuse_unknown(table, KEYS, where, mistake)
    transport = "http" if "url" in table and "command" not in table else "stdio"
    settings: ServerSettings = convert(ServerSettings, {"transport": transport, **table, "name": name}, where, mistake)
    needed = _REQUIRED_KEY[settings.transport]
    if settings.enabled and not getattr(settings, needed):
        raise mistake(f"no {needed}", path=where(()), hint=f"a server of the transport {settings.transport} needs one")
    if settings.url and not settings.url.startswith(("http://", "https://")):
        raise mistake("not a URL of http or https", path=where(("url",)))
    for key in _POSITIVE:
        if getattr(settings, key) <= 0:
            raise mistake("not more than 0", path=where((key,)))
    if settings.directory and base is not None:
        placed = str(base / Path(settings.directory).expanduser())
        settings = msgspec.structs.replace(settings, directory=placed)
    return DescribedServer(settings, where(()))


def _translate_entry(entry: Any, where: Where, environ: Mapping[str, str]) -> dict[str, Any]:
    """Translate a server of `mcp.json` to our keys. Unknown keys belong to other clients and are ignored."""
    if not isinstance(entry, dict):
        raise DescriptorError("not an object", path=where(()))
    enabled = not entry.get("disabled", False)
    if not enabled:
        return {"enabled": False}
    default_type = "http" if "url" in entry else "stdio"
    kind = entry.get("type", default_type)
    if kind not in _TYPES:
        hint = "ask for a URL of streamable HTTP" if kind == "sse" else suggest(str(kind), _TYPES)
        raise DescriptorError(f"no transport {kind!r}", path=where(("type",)), hint=hint)
    text = {
        key: _expand_variables(entry[key], (key,), where, environ)
        for key in ("command", "args", "env", "cwd", "url", "headers", "protocol")
        if entry.get(key) is not None
    }
    if not isinstance(text.get("command", ""), str):
        raise DescriptorError("not a string", path=where(("command",)))
    if not isinstance(text.get("args", []), list):
        raise DescriptorError("not a list", path=where(("args",)))
    table: dict[str, Any] = {"transport": _TYPES[kind], **{key: text[key] for key in ("protocol",) if key in text}}
    table |= {ours: entry[key] for key, ours in _FILTER_KEYS.items() if entry.get(key) is not None}
    if table["transport"] == "http":
        return {**table, "url": text.get("url", ""), "headers": text.get("headers", {})}
    command = [text["command"]] if text.get("command") else []
    return {
        **table,
        "command": [*command, *text.get("args", [])] if command else [],
        "environment": text.get("env", {}),
        "directory": text.get("cwd", ""),
    }


def _expand_variables(value: Any, keys: Keys, where: Where, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _expand_variables(each, (*keys, key), where, environ) for key, each in value.items()}
    if isinstance(value, list):
        return [_expand_variables(each, (*keys, at), where, environ) for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value

    def substitute(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        text = environ.get(name) or default
        if text is None:
            raise DescriptorError(f"the environment has no {name!r}", path=where(keys), hint=f"set {name}")
        return text

    return _VARIABLE.sub(substitute, value)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise DescriptorError(error.strerror or "cannot be read", path=str(file)) from None
    if len(data) > MAX_BYTES:
        raise DescriptorError(f"larger than {MAX_BYTES // 1024} KB", path=str(file))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DescriptorError("not UTF-8", path=str(file)) from None


def _find_line(text: str, keys: Keys) -> int:
    """Return the line where the keys occur one after another, which is close enough for a message."""
    at = 0
    for key in keys:
        match = (
            re.compile(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:").search(text, at)
            if isinstance(key, str)
            else None
        )
        at = match.end() if match else at
    return text.count("\n", 0, at) + 1
