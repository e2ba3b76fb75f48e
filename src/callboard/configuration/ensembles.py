"""Ensembles from configuration.

Owns their life: described, created, connected, disconnected (seed 000), and the descriptors in directories.
What a descriptor may say is `tools.descriptors`' business.
Law: whatever fails, each ensemble that was connected is disconnected.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from callboard.configuration.callables import BUILT_IN, find_callable, make_connection
from callboard.configuration.toml import read_document
from callboard.errors import DescriptorError, ToolExecutionFailure
from callboard.tools import Ensemble, EnsembleDescriptor, InvokerDescriptor, make_invoker, read_ensemble, read_invoker
from callboard.tools.descriptors import Keys, Source, Where, dotted

SHIPPED = Path(__file__).with_name("data") / "ensembles"
"""Where the descriptors of the built-in ensembles are."""

_ENVIRONMENT = "env:"


async def prepare_ensembles(configuration: Mapping[str, Any]) -> list[Ensemble]:
    """Creates and connects the ensembles of `configuration["ensembles"]` that are enabled, in their order.

    Each is a descriptor: as in its file, or with the keys of `[ensemble]` at the top, or as `load_directory`
    gives it. Raises DescriptorError before anything is connected, and ToolExecutionFailure that names the
    ensemble that could not be connected; those before it are disconnected then.
    """
    described = [
        each
        if isinstance(each, EnsembleDescriptor)
        else _read(each, lambda keys, at=at: dotted(("ensembles", at, *keys)))  # type: ignore[misc]  # a default binds it
        for at, each in enumerate(_entries(configuration))
    ]
    enabled = [each for each in described if each.enabled]
    _refuse_twice(enabled)
    created = [_create(each) for each in enabled]
    connected: list[Ensemble] = []
    try:
        for ensemble in created:
            await _connect(ensemble)
            connected.append(ensemble)
    except BaseException as error:
        try:
            await disconnect_ensembles(connected)
        except ToolExecutionFailure as further:
            error.add_note(str(further))
        raise
    return created


async def disconnect_ensembles(ensembles: Iterable[Ensemble]) -> None:
    """Disconnects all of them, the last first, whichever fails.

    Raises ToolExecutionFailure for the first that failed, with the others in its notes.
    """
    failures: list[ToolExecutionFailure] = []
    stopped: BaseException | None = None
    for ensemble in reversed([*ensembles]):
        try:
            await ensemble.disconnect()
        except Exception as error:  # noqa: BLE001  # raised when the others are disconnected
            failures.append(_failure("disconnect", ensemble, error))
        except BaseException as error:  # noqa: BLE001  # likewise: cancelled while disconnecting
            stopped = error
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
    """The configuration of the ensembles in `path/*.toml`, for `prepare_ensembles`.

    A `source` is relative to the directory and stays beneath it. A string `env:NAME` in `[ensemble]` or
    `[defaults]` is what the environment variable NAME holds. Raises DescriptorError with file, line and key.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise DescriptorError(
            "no such directory", path=str(path), hint=f"a directory, or a built-in ensemble: {', '.join(BUILT_IN)}"
        )
    files = sorted(each for each in directory.glob("*.toml") if not each.name.startswith("."))
    if not files:
        raise DescriptorError("no ensemble in it", path=str(path), hint="describe one in a file NAME.toml")
    return {"ensembles": [_load(each, environ) for each in files]}


def load_configuration(
    where: Iterable[str | Path], environ: Mapping[str, str] | None = None
) -> dict[str, list[EnsembleDescriptor]]:
    """The configuration of all of these: directories, and names of built-in ensembles. Raises DescriptorError."""
    found: list[EnsembleDescriptor] = []
    for each in where:
        if str(each) in BUILT_IN:
            found.append(_load(SHIPPED / f"{each}.toml", environ))
        else:
            found += load_directory(each, environ)["ensembles"]
    return {"ensembles": found}


def _load(path: Path, environ: Mapping[str, str] | None) -> EnsembleDescriptor:
    document = read_document(path, DescriptorError)

    def source(named: str, place: str) -> InvokerDescriptor:
        found = read_document(_confined(path.parent, named, place), DescriptorError)
        return read_invoker(found.values, found.where)

    return _read(document.values, document.where, source, environ)


def _read(
    given: Any, where: Where, source: Source | None = None, environ: Mapping[str, str] | None = None
) -> EnsembleDescriptor:
    """The descriptor, with what it takes from the environment; of one that is not enabled little is read."""
    own = given.get("ensemble", given) if isinstance(given, Mapping) else None
    if not isinstance(own, Mapping):
        return read_ensemble(given, where)  # which says what is wrong
    if own.get("enabled") is False:
        return EnsembleDescriptor(name=str(own.get("name", "")), enabled=False, path=where(()))
    # Tools' descriptions and schemas are for models: nothing in them is taken from the environment.
    variables = os.environ if environ is None else environ
    resolved = {
        key: value if key == "invokers" else _resolved(value, (key,), where, variables) for key, value in given.items()
    }
    return read_ensemble(resolved, where, source)


def _resolved(value: Any, keys: Keys, where: Where, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str) and value.startswith(_ENVIRONMENT):
        name = value.removeprefix(_ENVIRONMENT)
        if name not in environ:
            raise DescriptorError(f"the environment has no {name!r}", path=where(keys), hint=f"set {name}")
        return environ[name]
    if isinstance(value, Mapping):
        return {key: _resolved(each, (*keys, key), where, environ) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, (*keys, at), where, environ) for at, each in enumerate(value)]
    return value


def _confined(directory: Path, source: str, place: str) -> Path:
    """The file of a source. Raises DescriptorError if it leads out of the directory."""
    target = (directory / source).resolve()
    if ".." in Path(source).parts or Path(source).is_absolute() or not target.is_relative_to(directory.resolve()):
        raise DescriptorError(f"{source!r} leads out of {directory}", path=place)
    if not target.is_file():
        raise DescriptorError(f"no file {source!r} in {directory}", path=place)
    return directory / source


def _entries(configuration: Mapping[str, Any]) -> Iterable[Any]:
    entries = configuration.get("ensembles")
    if not isinstance(entries, (list, tuple)):
        raise DescriptorError("not a list of ensembles", path="ensembles")
    return entries


def _create(described: EnsembleDescriptor) -> Ensemble:
    connection = make_connection(described)
    invokers = [make_invoker(each, find_callable(each, described)) for each in described.invokers if each.enabled]
    return Ensemble(described.name, invokers, described.configuration, connection)


async def _connect(ensemble: Ensemble) -> None:
    try:
        await ensemble.connect()
    except Exception as error:
        raise _failure("connect", ensemble, error) from error


def _failure(what: str, ensemble: Ensemble, error: Exception) -> ToolExecutionFailure:
    failure = ToolExecutionFailure(
        f"cannot {what}: {str(error) or type(error).__name__}", path=f"ensemble {ensemble.name}"
    )
    failure.__cause__ = error
    return failure


def _refuse_twice(described: Iterable[EnsembleDescriptor]) -> None:
    seen: dict[str, EnsembleDescriptor] = {}
    for each in described:
        if (other := seen.setdefault(each.name, each)) is not each:
            raise DescriptorError(
                f"two ensembles are named {each.name!r}", path=each.path, hint=f"the other is at {other.path}"
            )
