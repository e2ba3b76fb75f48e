"""Find an agent by its reference: `module:attribute` or `path.py:attribute`.

A reference is code to import. So nothing here reads a reference from the database. A worker, and a process that submits a job,
import only the references that their commands name.
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
        CallerError: The module or attribute does not exist, the import fails, or the attribute is not an Agent.
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


def normalize_reference(reference: str) -> str:
    """Return the reference with an absolute path, so that it does not depend on the current directory."""
    place, colon, attribute = reference.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else reference


def agent_queue(reference: str) -> str:
    """The queue of an agent's jobs: only workers that know the agent take them."""
    return f"{QUEUE}-agent:{reference}"


def _import_path(path: Path) -> ModuleType:
    """Import the module of a file. A file that runs as a script is not imported again."""
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
