"""Dry run of an edit: the tool's own function runs on files whose changes stay in memory.

Laws: a dry run writes nothing to disk, and files that it reads do not count as read by the model.
"""

from __future__ import annotations

import errno
import os
import stat

import msgspec

from callboard.coding.agents.phases import actions_of_groups
from callboard.coding.tools import single_action
from callboard.coding.workspace.changed_files import ChangedFile, read_before
from callboard.coding.workspace.workspace import ReadTracker, Workspace
from callboard.core import InvocationCanister, ResultCanister
from callboard.execution import run_invoker
from callboard.storage.confined_directory import ConfinedDirectory, ResolvedPath
from callboard.tools import Ensemble, Invoker


class DryRun(msgspec.Struct, frozen=True):
    """The outcome: the changes of the edit, the `result` for the model, and the files that it would have `seen`."""

    changes: tuple[ChangedFile, ...]
    result: ResultCanister
    seen: ReadTracker

    @property
    def error(self) -> str:
        """Why the edit would fail, "" if it would not."""
        return self.result.error.message if self.result.error else ""


async def dry_run_edit(invoker: Invoker, invocation: InvocationCanister) -> DryRun | None:
    """Runs an edit of a workspace dry; None for any other call, which is never run."""
    arguments = invocation.arguments or {}
    workspace = invoker.ensemble.connection if invoker.ensemble else None
    if not isinstance(workspace, Workspace) or single_action(invoker.name, arguments) not in actions_of_groups(
        ("edit",)
    ):
        return None
    overlay = _OverlayWorkspace(workspace)
    group = Ensemble("dry_run", [invoker], connection=overlay)
    result = await run_invoker(
        group.access_invoker(invoker.name),
        arguments,
        identifier=invocation.identifier,
        on_error="feedback",
        timeout=invoker.timeout,
    )
    return DryRun(overlay.overlay_files.changes, result, overlay.seen)


class _OverlayWorkspace(Workspace):
    """A workspace that cannot be changed, and runs nothing."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.root)
        self.files = self.overlay_files = OverlayFiles(workspace.files)
        self.seen = workspace.seen.copy()


class OverlayFiles(ConfinedDirectory):
    """Files whose writes stay in memory; an unwritten file is read from `files`, while they are connected."""

    def __init__(self, files: ConfinedDirectory) -> None:
        super().__init__()
        # The same open directory, so that the same paths are refused.
        vars(self).update(vars(files))
        self._written: dict[str, bytes | None] = {}
        self._real = files

    def read(self, path: str, limit: int) -> bytes:
        key = self.canonical(path)
        if key not in self._written:
            return super().read(path, limit)
        written = self._written[key]
        if written is None:
            raise FileNotFoundError(path)
        return written

    def canonical(self, path: str) -> str:
        try:
            return super().canonical(path)
        except FileNotFoundError:
            # In a directory that the edit would make.
            steps = os.path.normpath(path)
            if steps.startswith("..") or any(step.casefold() in self._read_only for step in steps.split("/")):
                raise PermissionError(f"{path!r} is not to be changed") from None
            return steps.lstrip("/")

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        try:
            with self._resolve(path, change=True) as place:
                key = place.path
                _check(place, path)
        except FileNotFoundError:
            key = self.canonical(path)
        self._written[key] = data

    def delete(self, path: str) -> None:
        with self._resolve(path, change=True, follow=False) as place:
            _check(place, path)
            self._written[place.path] = None

    @property
    def changes(self) -> tuple[ChangedFile, ...]:
        """Return the files that were written."""
        return tuple([ChangedFile(path, read_before(self._real, path), data) for path, data in self._written.items()])


def _check(place: ResolvedPath, path: str) -> None:
    """Raises OSError for a path that leads to nothing, or to a directory."""
    if stat.S_ISDIR(os.stat(place.name, dir_fd=place.parent, follow_symlinks=False).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
