"""A row of the table of test runners: how it is detected, started and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.coding.test_runners.report import Tally

Kind: TypeAlias = Literal["go", "npm", "python", "cargo", "make"]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests are asked for (seed 003); "" is all of them.

    `package` is a package or folder, `module` one module or file of tests, `run` a pattern of test names, `script` a
    script of package.json or a target of make; `count` is how often they run.
    """

    package: str = ""
    run: str = ""
    script: str = ""
    module: str = ""
    count: int = 1
    verbose: bool = False


class ProjectFolder(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a folder: where it is, the names in it (those of folders end with `/`), and the text of files
    that say how it is built. `tests` are the names in its folder of tests, `python` is its interpreter.
    """

    root: str = ""
    names: frozenset[str] = frozenset()
    texts: Mapping[str, str] = {}
    tests: frozenset[str] = frozenset()
    python: str = "python3"

    def json(self, name: str) -> dict[str, Any]:
        """A file's JSON object, empty if it has none."""
        try:
            read = msgspec.json.decode(self.texts.get(name, ""))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return {}
        return read if isinstance(read, dict) else {}


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """One runner. `fits` says whether a folder is one of its kind; `command` is what is run there.

    `read` is given the output and the exit code, None if it was stopped. `honours` are the parts of a selection that
    mean something to it, `manifests` the files whose text it reads. Where `absent` is in the output of a run that
    failed, `instead` is tried.
    """

    name: str
    kind: Kind
    matches: Callable[[ProjectFolder], bool]
    command: Callable[[Selection, ProjectFolder], list[str]]
    parse: Callable[[str, int | None, ProjectFolder], Tally]
    options: frozenset[str]
    manifests: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    missing_message: str = ""
    fallback: Runner | None = None
