"""Tools named on the command line.

Owns the way from `module:attribute` to tools. Runs the code that is named: it is the user's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from callboard.errors import CallerError
from callboard.tools import Ensemble, Roster, Tool


def load_ensembles(specifications: Iterable[str]) -> list[Ensemble]:
    """One ensemble for the tools, and the ensembles as they are.

    A specification is `module:attribute` or `file.py:attribute`, or without attribute all tools of the
    module; the attribute is a tool, a function, an ensemble, or a list of these. Raises CallerError.
    """
    found: list[Any] = []
    for specification in specifications:
        found += _load(specification)
    ensembles = [each for each in found if isinstance(each, Ensemble)]
    tools = [each for each in found if not isinstance(each, Ensemble)]
    return [*([Ensemble("local", tools)] if tools else []), *ensembles]


def load_roster(specifications: Iterable[str]) -> Roster:
    return Roster(load_ensembles(specifications))


def _load(specification: str) -> list[Any]:
    where, _, attribute = specification.partition(":")
    module = _module(where, specification)
    if not attribute:
        tools = [each for each in vars(module).values() if isinstance(each, (Tool, Ensemble))]
        if not tools:
            raise CallerError("no tool in it", path=specification, hint="decorate a function with @tool")
        return tools
    try:
        value = getattr(module, attribute)
    except AttributeError:
        raise CallerError(f"{where} has no {attribute!r}", path=specification) from None
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _module(where: str, specification: str) -> ModuleType:
    path = Path(where)
    try:
        if path.suffix == ".py":
            spec = spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise CallerError("no such file", path=specification)
            module = module_from_spec(spec)
            sys.modules.setdefault(path.stem, module)
            spec.loader.exec_module(module)
            return module
        if not where or where.startswith("."):
            raise CallerError("names no module", path=specification, hint="write module:attribute or file.py")
        sys.path.insert(0, str(Path.cwd()))
        return import_module(where)
    except ModuleNotFoundError as error:
        raise CallerError(
            f"no module {error.name!r}", path=specification, hint="write module:attribute or file.py"
        ) from None
    except SyntaxError as error:
        raise CallerError(f"line {error.lineno}: {error.msg}", path=specification) from None
