"""The workspace that the tools of a job share: a directory, what the model has seen of it, and a sandbox.

Law: nothing is read or written outside of the root, and `.git` is not written; files change one edit at a time.

`ReadTracker` remembers which lines of which files the model has seen, and whether they changed since.
Law: a line whose number changed since it was shown counts as unseen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from callboard.errors import SandboxUnavailable
from callboard.programs import exclude_repository
from callboard.storage.confined_directory import ConfinedDirectory, set_path_guard
from callboard.tools import Context
from callboard.tools.context import Permits, everything

if TYPE_CHECKING:
    from callboard.coding.git.tree import Tree
    from callboard.coding.test_runners.report import TestReport
    from callboard.sandbox import Confinement, Sandbox

ReadStatus: TypeAlias = Literal["seen", "changed", "unseen"]


class ReadTracker:
    """Hashes of the lines that were shown, by the files' canonical paths.

    Only hashes are kept, of Python's own, which nobody outside of the process can choose.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[int, int]] = {}
        self._lock = Lock()

    def record(self, path: str, start: int, lines: Sequence[str]) -> None:
        """Record lines that were shown; the first has the number `start`, from 1."""
        with self._lock:
            self._files.setdefault(path, {}).update(enumerate(map(hash, lines), start))

    def compare(self, path: str, start: int, lines: Sequence[str]) -> ReadStatus:
        """Compare lines with those that were shown under their numbers; `unseen` if any was never shown."""
        with self._lock:
            known = self._files.get(path, {})
            hashes = [known.get(number) for number in range(start, start + len(lines))]
        if None in hashes:
            return "unseen"
        return "seen" if hashes == [*map(hash, lines)] else "changed"

    def copy(self) -> ReadTracker:
        """Return an independent copy."""
        copied = ReadTracker()
        with self._lock:
            copied._files = {path: {**lines} for path, lines in self._files.items()}
        return copied

    def forget(self, path: str, start: int = 1) -> None:
        """Forget the lines from `start` on: they have other numbers now, or are gone."""
        with self._lock:
            known = self._files.get(path, {})
            self._files[path] = {number: line for number, line in known.items() if number < start}


READ_ONLY: Final = (".git",)
"""Names that no tool writes to."""
VENVS: Final = (".venv", "venv")
"""Names of virtual environments in a project."""


class Workspace:
    """A directory that a model works in; the connection of the ensembles `coding` and `coding_single`.

    Args:
        root: The directory.
        sandbox: The sandbox for commands; by default the best available one, chosen when the workspace connects.
        confinement: Access of commands; by default the root, and no network.
        prefer: The name of the sandbox to use; "none" for none.
    """

    def __init__(
        self,
        root: str | Path = ".",
        *,
        sandbox: Sandbox | None = None,
        confinement: Confinement | None = None,
        prefer: str = "",
    ) -> None:
        self.root = Path(root)
        self.files = ConfinedDirectory(str(root), READ_ONLY)
        self.seen = ReadTracker()
        self.edit_lock = RLock()
        """Is held from reading a file to writing the edited text."""
        self.sandbox = sandbox
        self.sandbox_error = ""
        """Why there is no sandbox."""
        self.tree: Tree | None = None
        """The tree of the job that works here, None for a chat."""
        self.reports: list[TestReport] = []
        """Reports of the test runs, in order."""
        self.permits: Permits = everything
        """The files that commands may see; the sandbox hides the rest if it can."""
        self._confinement = confinement
        self._prefer = prefer

    @property
    def confinement(self) -> Confinement:
        """Return the access of commands; by default the root, and no network."""
        if self._confinement is None:
            from callboard.sandbox import Confinement  # noqa: PLC0415  # where commands run

            self._confinement = Confinement(workspace=self.root, read_only=READ_ONLY)
        return self._confinement

    def aliases(self, path: str) -> list[str]:
        """Return every name of a file, as the permission rules need them; see ConfinedDirectory.aliases."""
        return self.files.aliases(path)

    @property
    def notice(self) -> str:
        """Return the notice about the sandbox for the user; it may appear only after a command has run."""
        return (
            self.sandbox.notice if self.sandbox else self.sandbox_error and f"commands cannot run: {self.sandbox_error}"
        )

    def find_python(self) -> str:
        """Return the interpreter of the project's virtual environment, own or borrowed, else the first on PATH."""
        for name in VENVS:
            borrowed = self.confinement.bind_mounts.get(name)
            if borrowed is not None:
                return f"{borrowed}/bin/python"
            if (self.root / name / "bin" / "python").exists():
                return f"{self.root}/{name}/bin/python"
        return "python3"

    async def connect(self) -> None:
        """Open the root, and find a sandbox. Raises CallerError."""
        exclude_repository(self.root)
        await self.files.connect()
        self.root = Path(os.path.realpath(self.root))  # noqa: ASYNC240  # a few links, once
        if self.sandbox is None:
            from callboard.sandbox import find_sandbox  # noqa: PLC0415  # as above

            try:
                self.sandbox = await find_sandbox(unconfined=self._prefer == "none", prefer=self._prefer)
            except SandboxUnavailable as error:
                self.sandbox_error = str(error)

    async def disconnect(self) -> None:
        """Close the root."""
        await self.files.disconnect()


def connection(
    root: str = ".",
    sandbox: Literal["", "bubblewrap", "landlock", "none"] = "",
    hosts: Sequence[str] = (),
    readable: Sequence[str] = (),
) -> Workspace:
    """Make the workspace that an ensemble connects to, by its options.

    `root` is the directory, by default the current one. Commands run in `sandbox`, by default the best available one.
    They may reach `hosts`, by default none, and read the further directories `readable`.
    """
    made = Workspace(root, prefer=sandbox)
    if hosts or readable:
        from callboard.sandbox import Confinement  # noqa: PLC0415  # as above

        made = Workspace(
            root,
            prefer=sandbox,
            confinement=Confinement(
                workspace=Path(os.path.realpath(root)),
                read_only=READ_ONLY,
                hosts=tuple(hosts),
                readable=tuple(map(Path, readable)),
            ),
        )
    return made


def get_workspace(context: Context, *, opens_any: bool = False) -> Workspace:
    """Get the workspace of a running tool; from now on its files open only as far as the rules permit this call.

    `opens_any` is for a tool that does not show what it opens, as the search for a test runner's settings.
    """
    ensemble = context.invoker.ensemble if context.invoker else None
    workspace = ensemble.connection if ensemble else None
    if not isinstance(workspace, Workspace):
        raise TypeError("this tool belongs to an ensemble with a workspace")
    set_path_guard(None if opens_any else context.permits)
    return workspace
