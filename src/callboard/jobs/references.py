"""Agents by reference: `module:attribute` or `path.py:attribute`, as a job's row names the agent that it is a run of.

A reference is code to import, and whoever writes to the database writes references. So nothing here reads one from a row:
a worker imports those that it was told, the process that submits a job has its own, and a row only chooses among them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from callboard.agent import Agent
from callboard.errors import CallerError
from callboard.jobs.job import QUEUE

_HINT: Final = "write module:attribute or path.py:attribute, such as my_app.agents:reviewer"


def load_agent(reference: str) -> Agent[Any]:
    """Import the agent of a reference.

    Raises:
        CallerError: There is no such module or attribute, its import fails, or it is no Agent.
    """
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute:
        raise CallerError("no reference to an agent", path=reference, hint=_HINT)
    try:
        module = _import_path(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise CallerError(f"its module cannot be imported: {type(error).__name__}: {error}", path=reference) from error
    agent = getattr(module, attribute, None)
    if not isinstance(agent, Agent):
        what = "a " + type(agent).__name__ if hasattr(module, attribute) else "nothing"
        raise CallerError(f"there is {what}, and no Agent", path=reference, hint=_HINT)
    return agent


def find_references() -> dict[str, Agent[Any]]:
    """The agents that are variables of modules of this process, by their references."""
    return {
        f"{place}:{attribute}": value
        for module in [*sys.modules.values()]
        if (place := _place_of(module))
        for attribute, value in [*vars(module).items()]
        if isinstance(value, Agent)
    }


def find_reference(agent: Agent[Any]) -> str:
    """The reference of an agent of this process. Raises CallerError for one that is no variable of a module."""
    references = [reference for reference, each in find_references().items() if each is agent]
    if not references:
        hint = "make it a variable of a module, since another process has to find it by name"
        raise CallerError("the agent cannot be found again", path="agent", hint=hint)
    return references[0]


def normalize_reference(reference: str) -> str:
    """The reference with its path made absolute, so that it is the same wherever a process was started."""
    place, colon, attribute = reference.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else reference


def agent_queue(reference: str) -> str:
    """The queue of an agent's jobs: only workers that know the agent take them."""
    return f"{QUEUE}-agent:{reference}"


def _place_of(module: Any) -> str:
    """The module part of references into a module; empty where another process could not import it."""
    if not isinstance(module, ModuleType) or module.__name__.partition(".")[0] == "callboard":
        return ""
    if module.__name__ != "__main__":
        return module.__name__
    path = getattr(module, "__file__", None)
    return str(Path(path).resolve()) if path else ""


def _import_path(path: Path) -> ModuleType:
    """The module of a file; the one that runs as a script is the program itself."""
    resolved = path.resolve()
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == resolved:
        return main
    name = f"callboard_agents_{resolved.stem}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
