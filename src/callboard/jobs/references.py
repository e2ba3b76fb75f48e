"""Agents by reference: `module:attribute` or `path.py:attribute`, as a job's row names the agent that it is a run of.

A reference is code to import, and whoever writes to the database writes references. So nothing here reads one from a row:
a worker imports those that it was told, the process that submits a job has its own, and a row only chooses among them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from callboard.agent import Agent
from callboard.errors import CallerError
from callboard.jobs.job import QUEUE

_HINT: Final = "write module:attribute or path.py:attribute, such as my_app.agents:reviewer"
_OF_FILE: Final = "callboard_agents_"
"""What the name of a module begins with that was imported from a file."""


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
        is_there = hasattr(module, attribute)
        problem = f"a {type(agent).__name__} is no Agent" if is_there else f"its module has no {attribute}"
        raise CallerError(problem, path=reference, hint=_HINT)
    return agent


def load_agents(references: Iterable[str]) -> dict[str, Agent[Any]]:
    """Import agents, and find all references by which a process that submits a job may name them.

    A module is its name to one that imports it and its path to one that it is the script of, and another module that
    imports the agent has it as well.

    Raises:
        CallerError: As `load_agent`.
    """
    agents = {normalize_reference(each): load_agent(each) for each in references}
    known = [*agents.values()]
    for module, attribute, agent in _find_variables():
        if any(agent is each for each in known):
            agents |= {f"{place}:{attribute}": agent for place in _all_places_of(module)}
    return agents


def find_references() -> dict[str, Agent[Any]]:
    """The agents that are variables of modules of this process, by their references."""
    return {f"{_place_of(module)}:{attribute}": agent for module, attribute, agent in _find_variables()}


def find_reference(agent: Agent[Any]) -> str:
    """The reference of an agent of this process: of the module that makes it, where others import it from there.

    Raises CallerError for one that is no variable of a module.
    """
    variables = [(module, attribute) for module, attribute, each in _find_variables() if each is agent]
    if not variables:
        hint = "make it a variable of a module, since another process has to find it by name"
        raise CallerError("the agent cannot be found again", path="agent", hint=hint)
    made = variables if len(variables) == 1 else [each for each in variables if not _imports(*each)]
    module, attribute = (made or variables)[0]
    return f"{_place_of(module)}:{attribute}"


def normalize_reference(reference: str) -> str:
    """The reference with its path made absolute, so that it is the same wherever a process was started."""
    place, colon, attribute = reference.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else reference


def agent_queue(reference: str) -> str:
    """The queue of an agent's jobs: only workers that know the agent take them."""
    return f"{QUEUE}-agent:{reference}"


def _find_variables() -> Iterator[tuple[ModuleType, str, Agent[Any]]]:
    """The agents in modules that another process can import, with the names of their variables."""
    for module in [*sys.modules.values()]:
        if isinstance(module, ModuleType) and _place_of(module):
            for attribute, value in [*vars(module).items()]:
                if isinstance(value, Agent):
                    yield module, attribute, value


def _place_of(module: ModuleType) -> str:
    """The module part of references into a module; empty where another process could not import it."""
    name = module.__name__
    if name.partition(".")[0] == "callboard":
        return ""
    return _path_of(module) if name == "__main__" or name.startswith(_OF_FILE) else name


def _path_of(module: ModuleType) -> str:
    path = getattr(module, "__file__", None)
    return str(Path(path).resolve()) if path else ""


def _all_places_of(module: ModuleType) -> set[str]:
    """The module parts of references into a module: its name where it can be imported by it, and its path."""
    place, path = _place_of(module), _path_of(module)
    places = {place, path} - {""}
    if place == path and (name := Path(path).stem).isidentifier() and name != "__main__":
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and Path(spec.origin).resolve() == Path(path):
            places.add(name)
    return places


def _imports(module: ModuleType, attribute: str) -> bool:
    """Whether a module has a variable from another one, as far as its source says so."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return False
    names = [each for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names]
    return any((each.asname or each.name) in {attribute, "*"} for each in names)


def _import_path(path: Path) -> ModuleType:
    """The module of a file; the one that runs as a script is the program itself."""
    resolved = path.resolve()
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == resolved:
        return main
    name = f"{_OF_FILE}{resolved.stem}"
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
