"""Find the Python objects and the files that descriptors name. Importing a module runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, reduce
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from callboard.errors import CallerError, DescriptorError
from callboard.plugins import plugins
from callboard.schema import ArgumentsInvalid, derive
from callboard.text.suggest import suggest
from callboard.tools import EnsembleDescriptor, InvokerDescriptor
from callboard.tools.descriptors import ENSEMBLE_KEYS

BUILT_IN = {"io": "callboard.configuration.io_tools"}
"""Modules of the built-in ensembles, whose files name none."""
ENSEMBLES_DIRECTORY = Path(__file__).with_name("data") / "ensembles"
"""Directory of the built-in ensembles' files."""


def named_ensembles() -> Mapping[str, Path]:
    """Return the files of all named ensembles: built-in ones and plug-ins (`callboard.ensembles`)."""
    return {**{name: ENSEMBLES_DIRECTORY / f"{name}.toml" for name in BUILT_IN}, **_plugin_files()}


def ensemble_file(name: str) -> Path | None:
    """Return the file of the ensemble with this name, or None. Raises CallerError as `plugins` does."""
    if name in BUILT_IN:
        return ENSEMBLES_DIRECTORY / f"{name}.toml"
    # Read entry points only if the text can be a name.
    return _plugin_files().get(name) if name.isidentifier() else None


@cache
def _plugin_files() -> Mapping[str, Path]:
    """The files of packages: each entry point is a path, and the ensemble has the file's name."""
    files: dict[str, Path] = {}
    for each in plugins("callboard.ensembles"):
        if not isinstance(each, (str, PathLike)):
            raise CallerError(f"{each!r} is no path of a file", path="callboard.ensembles", hint="name one: NAME.toml")
        files[Path(each).stem] = Path(each)
    return files


def find_callable(invoker: InvokerDescriptor, ensemble: EnsembleDescriptor) -> Callable[..., Any]:
    """The function that an invoker names, else the one of its own name in the ensemble's module. Raises DescriptorError."""
    module, colon, attribute = invoker.callable.partition(":")
    if invoker.callable and not (module and colon and attribute):
        raise DescriptorError(
            f"{invoker.callable!r} does not name a function", path=invoker.path, hint="write package.module:function"
        )
    if not invoker.callable:
        module, attribute = _module_name(ensemble), invoker.name
    if not module:
        raise DescriptorError(
            f"no function is named for {invoker.name!r}",
            path=invoker.path,
            hint='write callable = "package.module:function", or module = "package.module" in [ensemble]',
        )
    imported = _import(module, invoker.path)
    try:
        function = reduce(getattr, attribute.split("."), imported)
    except AttributeError:
        own = [name for name, value in vars(imported).items() if getattr(value, "__module__", "") == module]
        functions = [name for name in own if not name.startswith("_")]
        hint = suggest(attribute, functions) if functions else "it has no functions"
        raise DescriptorError(f"{module} has no {attribute!r}", path=invoker.path, hint=hint) from None
    if not callable(function):
        raise DescriptorError(f"{module}:{attribute} is not a function", path=invoker.path)
    return function


def make_connection(ensemble: EnsembleDescriptor) -> Any:
    """Call the function `connection` of the ensemble's module with the options; None if there is no such function.

    Raises:
        DescriptorError: The function does not take an option.
    """
    module = _module_name(ensemble)
    maker = getattr(_import(module, ensemble.path), "connection", None) if module else None
    names = [*inspect.signature(maker).parameters] if maker else []
    for key in ensemble.options:
        if key not in names:
            raise DescriptorError("unknown key", path=ensemble.places[key], hint=suggest(key, [*ENSEMBLE_KEYS, *names]))
    if maker is None or not names:
        return maker() if maker else None
    try:
        return maker(**derive(maker).validate(ensemble.options))
    except ArgumentsInvalid as invalid:
        first = invalid.mistakes[0]
        key = first.path.partition(".")[0]
        place = ensemble.places.get(key) or f"{ensemble.path}: {key}"
        raise DescriptorError(first.message, path=place) from None


def _module_name(ensemble: EnsembleDescriptor) -> str:
    return ensemble.module or BUILT_IN.get(ensemble.name, "")


def _import(name: str, path: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise DescriptorError(f"{name!r} is not a module name", path=path, hint="write package.module")
    try:
        return import_module(name)
    except Exception as error:
        raise DescriptorError(f"cannot import {name}: {type(error).__name__}: {error}", path=path) from error
