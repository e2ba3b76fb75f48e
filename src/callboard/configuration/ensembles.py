"""Load ensembles from configuration, connect and disconnect them.

Rule: every connected ensemble is disconnected, even after failures.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callboard.configuration.import_by_name import ensemble_file, find_callable, make_connection, named_ensembles
from callboard.configuration.mcp import DescribedServer, read_servers
from callboard.configuration.toml import Document, read_document
from callboard.errors import CallerError, DescriptorError, ToolExecutionFailure
from callboard.execution.result_store import KeptResults
from callboard.mcp.settings import ServerSettings
from callboard.tools import (
    Ensemble,
    EnsembleDescriptor,
    InvokerDescriptor,
    make_invoker,
    read_ensemble,
    read_invoker,
    refuse_same_names,
)
from callboard.tools.descriptors import Keys, Source, Where, below, dotted_path, refuse_unknown

if TYPE_CHECKING:
    from callboard.mcp.ensemble import McpEnsemble

_log = logging.getLogger("callboard.configuration")

_ENVIRONMENT = "env:"


async def prepare_ensembles(
    configuration: Mapping[str, Any], *, warn: Callable[[str], None] = _log.warning, **options: Any
) -> list[Ensemble]:
    """Return the enabled ensembles and MCP servers of a configuration, connected.

    `configuration["ensembles"]` holds descriptors: as in a file, with the keys of `[ensemble]` at the top, or from
    `load_directory`. `configuration["mcp"]` holds servers: tables by name, or from `load_directory`. Servers come last
    and connect at once. One more ensemble reads the rest of shortened results. A server that fails to connect has no
    tools; if it is `required`, an error is raised.

    Args:
        configuration: Ensembles and servers.
        warn: Called with a line about each ensemble without tools, and about each server that cannot be connected.
            The line about a server is followed by the details.
        options: Arguments of McpEnsemble.

    Raises:
        DescriptorError: A descriptor is wrong; nothing was connected.
        ToolExecutionFailure: An ensemble failed to connect; the others were disconnected.
    """
    descriptors = [
        each
        if isinstance(each, EnsembleDescriptor)
        else _read(each, lambda keys, at=at: dotted_path(("ensembles", at, *keys)))  # type: ignore[misc]  # a default binds it
        for at, each in enumerate(_list_ensembles(configuration))
    ]
    servers = [each for each in _list_servers(configuration) if each.settings.enabled]
    enabled = [each for each in descriptors if each.enabled]
    refuse_same_names([*[(each.name, each.path) for each in enabled], *[(each.name, each.path) for each in servers]])
    created = [_create(each) for each in enabled]
    for each in created:
        if not each.invokers:
            warn(f"{each.name} has no tools: none is enabled in [[invokers]]")
    connected: list[Ensemble] = []
    try:
        for ensemble in created:
            await _connect(ensemble)
            connected.append(ensemble)
        if servers:
            from callboard.mcp.ensemble import McpEnsemble  # noqa: PLC0415 - 4 MB, for those who have servers

            result_store = options.pop("result_store", None) or KeptResults()
            starting = [
                McpEnsemble(
                    each.settings, result_store=result_store, warn=warn, cli_options=each.cli_options, **options
                )
                for each in servers
            ]
            connected += starting
            await _connect_servers(starting, [each.path for each in servers], warn)
            connected.append(result_store.ensemble())
    except BaseException as error:
        try:
            await disconnect_ensembles(connected)
        except ToolExecutionFailure as further:
            error.add_note(str(further))
        raise
    return connected


async def create_ensemble_from_configuration(configuration: Mapping[str, Any] | EnsembleDescriptor) -> Ensemble:
    """Return one ensemble, made from the descriptor `configuration` and not connected. Raises DescriptorError."""
    if isinstance(configuration, EnsembleDescriptor):
        return _create(configuration)
    return _create(_read(configuration, dotted_path))


async def disconnect_ensembles(ensembles: Iterable[Ensemble]) -> None:
    """Disconnect all `ensembles`, even after failures: first all servers at once, then the others in reverse order.

    Raises:
        ToolExecutionFailure: The first failure, with the others in its notes.
    """
    failures: list[ToolExecutionFailure] = []
    stopped: BaseException | None = None
    last_first = [*reversed([*ensembles])] if isinstance(ensembles, Iterable) else [ensembles]
    if not all(isinstance(each, Ensemble) for each in last_first):
        raise CallerError("not a list of ensembles", path="ensembles", hint="give the result of prepare_ensembles")
    servers = [each for each in last_first if _is_server(each)]
    for group in (servers, *([each] for each in last_first if not _is_server(each))):
        try:
            outcomes = await asyncio.gather(*map(_disconnect, group))
        except BaseException as error:  # noqa: BLE001  # raised when the others are disconnected: cancelled meanwhile
            stopped = error
            continue
        for ensemble, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                failures.append(_make_failure("disconnect", ensemble, outcome))
            elif outcome is not None:
                stopped = outcome
    if failures:
        first, *others = failures
        for each in others:
            first.add_note(str(each))
        if stopped is None:
            raise first
        stopped.add_note(str(first))
    if stopped is not None:
        raise stopped


def load_directory(path: str | Path, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the ensembles and servers in `*.toml` of the directory `path`, for `prepare_ensembles`.

    A file holds an ensemble, or servers in `[mcp.NAME]`. A `source` is a path inside the directory. A string `env:NAME`
    in `[ensemble]` or `[defaults]` is replaced by the variable of `environ`. Raises DescriptorError with file, line and
    key.
    """
    if not isinstance(path, (str, Path)):
        raise DescriptorError(f"{path!r} is not the path of a directory")
    directory = Path(path)
    if not directory.is_dir():
        raise DescriptorError(
            "no such directory",
            path=str(path),
            hint=f"a directory, or a built-in ensemble: {', '.join(named_ensembles())}",
        )
    files = sorted(each for each in directory.glob("*.toml") if not each.name.startswith("."))
    if not files:
        raise DescriptorError("the directory has no ensemble", path=str(path), hint="describe one in a file NAME.toml")
    ensembles: list[EnsembleDescriptor] = []
    servers: list[DescribedServer] = []
    for each in files:
        document = read_document(each, DescriptorError)
        if "mcp" in document.values and "ensemble" not in document.values:
            refuse_unknown(document.values, ("mcp",), document.where)
            servers += read_servers(document.values["mcp"], below(document.where, "mcp"), base=directory)
        else:
            ensembles.append(_load(document, each.parent, environ))
    return {"ensembles": ensembles, **({"mcp": servers} if servers else {})}


def names_a_module(where: Iterable[str | Path], environ: Mapping[str, str] | None = None) -> bool:
    """Return whether an ensemble in the directories `where` names a module. `environ` is the environment.

    Raises DescriptorError.
    """
    described = [load_directory(each, environ) for each in where if ensemble_file(str(each)) is None]
    return any(each.names_a_module for loaded in described for each in loaded["ensembles"])


def load_configuration(
    where: Iterable[str | Path], environ: Mapping[str, str] | None = None, servers: Iterable[DescribedServer] = ()
) -> dict[str, Any]:
    """Return the configuration of directories and named ensembles (`where`), with these `servers`.

    Raises DescriptorError. `environ` is the environment, by default this process's.
    """
    ensembles: list[EnsembleDescriptor] = []
    every = [*servers]
    for each in where:
        file = ensemble_file(str(each))
        if file is not None:
            ensembles.append(_load(read_document(file, DescriptorError), file.parent, environ))
        else:
            loaded = load_directory(each, environ)
            ensembles += loaded["ensembles"]
            every += loaded.get("mcp", ())
    return {"ensembles": ensembles, **({"mcp": every} if every else {})}


def _load(document: Document, directory: Path, environ: Mapping[str, str] | None) -> EnsembleDescriptor:
    def source(named: str, place: str) -> InvokerDescriptor:
        document_found = read_document(_resolve_source(directory, named, place), DescriptorError)
        return read_invoker(document_found.values, document_found.where)

    return _read(document.values, document.where, source, environ)


def _read(
    table: Any, where: Where, source: Source | None = None, environ: Mapping[str, str] | None = None
) -> EnsembleDescriptor:
    """Read a descriptor and resolve its variables. If it is disabled, read only its name."""
    own = table.get("ensemble", table) if isinstance(table, Mapping) else None
    if not isinstance(own, Mapping):
        return read_ensemble(table, where)  # raises the error
    if own.get("enabled") is False:
        return EnsembleDescriptor(name=str(own.get("name", "")), enabled=False, path=where(()))
    # Descriptions and schemas of tools go to models, so no variables are resolved in them.
    variables = os.environ if environ is None else environ
    resolved_table = {
        key: value if key == "invokers" else _resolve_variables(value, (key,), where, variables)
        for key, value in table.items()
    }
    return read_ensemble(resolved_table, where, source)


def _resolve_variables(value: Any, keys: Keys, where: Where, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str) and value.startswith(_ENVIRONMENT):
        name = value.removeprefix(_ENVIRONMENT)
        if name not in environ:
            raise DescriptorError(f"the environment has no {name!r}", path=where(keys), hint=f"set {name}")
        return environ[name]
    if isinstance(value, Mapping):
        return {key: _resolve_variables(each, (*keys, key), where, environ) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolve_variables(each, (*keys, at), where, environ) for at, each in enumerate(value)]
    return value


def _resolve_source(directory: Path, source: str, place: str) -> Path:
    """Return the path of a source. Raises DescriptorError if it is outside the directory."""
    target = (directory / source).resolve()
    if ".." in Path(source).parts or Path(source).is_absolute() or not target.is_relative_to(directory.resolve()):
        raise DescriptorError(f"{source!r} leads out of {directory}", path=place)
    if not target.is_file():
        raise DescriptorError(f"no file {source!r} in {directory}", path=place)
    return directory / source


def _list_ensembles(configuration: Any) -> Iterable[Any]:
    if not isinstance(configuration, Mapping):
        hint = "give {'ensembles': [...]}, or the result of load_directory"
        raise DescriptorError(f"a {type(configuration).__name__} is not a configuration", hint=hint)
    entries = configuration.get("ensembles", () if "mcp" in configuration else None)
    if not isinstance(entries, (list, tuple)):
        raise DescriptorError("not a list of ensembles", path="ensembles")
    return entries


def _create(described: EnsembleDescriptor) -> Ensemble:
    connection = make_connection(described)
    invokers = [make_invoker(each, find_callable(each, described)) for each in described.invokers if each.enabled]
    return Ensemble(described.name, invokers, described.configuration, connection)


def _list_servers(configuration: Mapping[str, Any]) -> list[DescribedServer]:
    servers = configuration.get("mcp", ())
    if not isinstance(servers, (Mapping, list, tuple)):
        raise DescriptorError("not a table of servers", path="mcp")
    if isinstance(servers, Mapping):
        return read_servers(servers, lambda keys: dotted_path(("mcp", *keys)))
    return [*servers]


def _is_server(ensemble: Ensemble) -> bool:
    """Return whether it is an MCP server. Servers need no other ensemble, so they all connect at once."""
    return isinstance(getattr(ensemble, "settings", None), ServerSettings)


async def _connect_servers(servers: Sequence[McpEnsemble], paths: Sequence[str], warn: Callable[[str], None]) -> None:
    """Connect all servers at once, and warn about failures. Raises ToolExecutionFailure for a required server."""
    outcomes = await asyncio.gather(*(each.connect() for each in servers), return_exceptions=True)
    for server, path, outcome in zip(servers, paths, outcomes, strict=True):
        if isinstance(outcome, Exception):
            if server.settings.required:
                raise _make_failure("connect", server, outcome) from outcome
            line = f'MCP server "{server.name}" is unreachable. Continuing without it.'
            warn(f"{line}\n{outcome}; `callboard mcp list` tries it, and it is set up at {path}")
            server.connect_in_background()
        elif isinstance(outcome, BaseException):
            raise outcome


async def _disconnect(ensemble: Ensemble) -> BaseException | None:
    """Disconnect, and return the error instead of raising it."""
    try:
        await ensemble.disconnect()
    except BaseException as error:  # noqa: BLE001  # raised when the others are disconnected
        return error
    return None


async def _connect(ensemble: Ensemble) -> None:
    try:
        await ensemble.connect()
    except Exception as error:
        raise _make_failure("connect", ensemble, error) from error


def _make_failure(what: str, ensemble: Ensemble, error: Exception) -> ToolExecutionFailure:
    failure = ToolExecutionFailure(
        f"cannot {what}: {str(error) or type(error).__name__}", path=f"ensemble {ensemble.name}"
    )
    failure.__cause__ = error
    return failure
