"""Find the projects of a repository and the runners of each: its own files say how it is tested.

A repository may have several projects, such as a Python package in the root and a web page in `frontend/`. A run of the
root may cover projects below; `Runner.covers` says which.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from callboard.coding.test_runners.cargo import CARGO
from callboard.coding.test_runners.go import GO
from callboard.coding.test_runners.javascript import NPM, has_javascript_tests
from callboard.coding.test_runners.make import MAKE
from callboard.coding.test_runners.python import NOX, PYTEST, TOX, UNITTEST, has_python_tests
from callboard.coding.test_runners.report import Kind, ProjectFolder, Runner
from callboard.coding.workspace.directory_walk import is_skipped, walk_directory
from callboard.coding.workspace.workspace import Workspace
from callboard.storage.confined_directory import ConfinedDirectory

RUNNERS: Final[tuple[Runner, ...]] = (GO, PYTEST, TOX, NOX, UNITTEST, CARGO, NPM, MAKE)
"""In the order in which they are tried; a folder may fit several."""
MAX_PROJECTS: Final = 20
"""Projects of one repository that are tested."""
MAX_DEPTH: Final = 3
"""Folders between the root and a project."""

_MANIFESTS: Final = tuple(dict.fromkeys(name for runner in RUNNERS for name in runner.manifests))
_ROOTS: Final = frozenset({"go.mod", "Cargo.toml", "package.json", "pyproject.toml", "setup.py"})
"""Files that make a folder a project of its own."""
_TESTS: Final = ("tests", "test")
_NOT_PROJECTS: Final = frozenset({*_TESTS, "testdata", "fixtures", "examples", "docs", "third_party", "templates"})
"""Folders whose projects are material of another project."""
_HAS_TESTS: Final[dict[Kind, Callable[[ProjectFolder], bool]]] = {
    "python": has_python_tests,
    "npm": has_javascript_tests,
    "make": lambda _: False,
}
"""Whether a folder below has tests of its own; each module of Go and each crate may have some."""
_MAX_NAMES: Final = 20_000
_MAX_MANIFEST: Final = 256 * 1024


def read_folder(files: ConfinedDirectory, place: str = "", borrowed: Sequence[str] = ()) -> ProjectFolder:
    """Read what detection needs of a folder beneath the root; `borrowed` folders count as if they were in it.

    Raises OSError for one that is not there.
    """
    names = {*_names(files, place or "."), *(f"{each}/" for each in borrowed if "/" not in each)}
    tests = {name for each in _TESTS if f"{each}/" in names for name in _names(files, _join(place, each))}
    texts = {}
    for each in _MANIFESTS:
        if each in names:
            with suppress(OSError):
                texts[each] = files.read(_join(place, each), _MAX_MANIFEST).decode("utf-8", "replace")
    return ProjectFolder(names=frozenset(names), texts=texts, tests=frozenset(tests), path=place)


def detect_runners(folder: ProjectFolder, kind: str = "") -> list[Runner]:
    """Return the runners of a folder, of a kind if given. The next one runs if the one before tested nothing."""
    if kind:
        same = [each for each in RUNNERS if each.kind == kind]
        return [each for each in same if each.matches(folder)] or same[:1]
    matches = [each for each in RUNNERS if each.matches(folder)]
    return [each for each in matches if each.kind in (matches[0].kind, "make")]


def find_projects(workspace: Workspace, folder: str, package: str = "", kind: str = "") -> list[ProjectFolder]:
    """Find the projects to test in a folder beneath the root; empty if nothing there says how it is tested.

    If `package` is a project of its own, it alone is tested.
    """
    files, borrowed = workspace.files, tuple(workspace.confinement.bind_mounts)
    root, python = str(workspace.root), workspace.find_python()
    search_path = workspace.confinement.environment.get("PATH", "")

    def read(path: str) -> ProjectFolder:
        project = read_folder(files, path, () if path else borrowed)
        place = f"{root}/{path}" if path else root
        return replace(project, root=place, python=python, search_path=search_path)

    if package:
        with suppress(OSError):
            inner = read(_join(folder, package))
            if inner.names & _ROOTS:
                return [inner]
    top = read(folder)
    projects = [top] if _is_tested(top, kind, is_top=True) else []
    if package or (kind and projects):
        return projects or [top] * bool(kind)
    covered = [(folder, _covered_kinds(top))] if projects else []
    for path in _project_paths(files, folder):
        with suppress(OSError):
            project = read(path)
            runners = detect_runners(project, kind)
            is_covered = any(
                runners and runners[0].kind in kinds and path.startswith(f"{above}/" if above else "")
                for above, kinds in covered
            )
            if not is_covered and _is_tested(project, kind):
                projects.append(project)
                covered.append((path, _covered_kinds(project)))
    if len(projects) > 1 and projects[0] is top and not _is_tested(top, kind):
        # The root has settings alone; its folders have the tests.
        projects.pop(0)
    return projects[:MAX_PROJECTS] or [top] * bool(kind)


def _is_tested(project: ProjectFolder, kind: str, *, is_top: bool = False) -> bool:
    runners = [each for each in detect_runners(project, kind) if each.matches(project)]
    return bool(runners) and (is_top or _HAS_TESTS.get(runners[0].kind, bool)(project))


def _covered_kinds(project: ProjectFolder) -> frozenset[Kind]:
    runners = detect_runners(project)
    # A root with settings alone covers nothing.
    return runners[0].covers(project) if _is_tested(project, "") or runners[0].kind == "make" else frozenset()


def _project_paths(files: ConfinedDirectory, folder: str) -> list[str]:
    """Return the folders below that are projects of their own, from the root of the workspace."""
    listing = walk_directory(
        files,
        folder or ".",
        limit=_MAX_NAMES,
        depth=MAX_DEPTH + 1,
        skip=lambda name: is_skipped(name) or name in _NOT_PROJECTS,
    )
    paths = [entry.path.rpartition("/") for entry in listing.entries if entry.kind == "file"]
    return sorted({_join(folder, parent) for parent, _, name in paths if parent and name in _ROOTS})


def _names(files: ConfinedDirectory, place: str) -> list[str]:
    try:
        return files.names(place, _MAX_NAMES)
    except OSError as error:
        # Too many to be looked at: a folder of data, not of manifests.
        if error.errno == errno.EFBIG:
            return []
        raise


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name
