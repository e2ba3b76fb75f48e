"""A row of the table of test runners: how it is detected, started and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.coding.test_runners.report import Tally

Kind: TypeAlias = Literal["go", "npm", "python", "cargo", "make"]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests to run; "" means all."""

    package: str = ""
    """A package or folder."""
    run: str = ""
    """A pattern of test names."""
    script: str = ""
    """A script of package.json, or a target of make."""
    module: str = ""
    """A module or file of tests."""
    count: int = 1
    """How often they run."""
    verbose: bool = False


class ProjectFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that may have tests."""

    root: str = ""
    names: frozenset[str] = frozenset()
    """The names in it; those of folders end with `/`."""
    texts: Mapping[str, str] = {}
    """The manifests in it, such as package.json, by name."""
    tests: frozenset[str] = frozenset()
    """The names in its folder of tests."""
    python: str = "python3"
    """Its interpreter."""

    def json(self, name: str) -> dict[str, Any]:
        """A file's JSON object, empty if it has none."""
        try:
            value = msgspec.json.decode(self.texts.get(name, ""))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return {}
        return value if isinstance(value, dict) else {}


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """One runner."""

    name: str
    kind: Kind
    matches: Callable[[ProjectFolder], bool]
    """Whether it tests such a folder."""
    command: Callable[[Selection, ProjectFolder], list[str]]
    parse: Callable[[str, int | None, ProjectFolder], Tally]
    """Reads the output and the exit code, which is None if the run was stopped."""
    options: frozenset[str]
    """The fields of a Selection that it supports."""
    manifests: tuple[str, ...] = ()
    """The files whose text it needs."""
    environment: Mapping[str, str] = {}
    missing_message: str = ""
    """How the output of a failed run ends if the runner is not installed; then `fallback` runs."""
    fallback: Runner | None = None
