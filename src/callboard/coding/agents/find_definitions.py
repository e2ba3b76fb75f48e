"""Find the definitions that failing tests use, through imports and re-exports; then their callees and callers.

Theory: a name is looked up in the module that uses it. A module defines it, imports it (`Module.names`), or may have it
from a star import (`Module.stars`). A name that is imported is looked up in the module that the import means. `Project`
decides which file that is, by a table of rules for each language.

Laws: only files of the repository's list are read, each once, and at most `MAX_MODULES`; cycles of imports end; the
work is linear in the text that is read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from callboard.coding.agents.module_names import MAX_LINES, SCRIPTS, Module
from callboard.coding.agents.prompts import Part, is_test_file
from callboard.coding.test_runners import TestReport

MAX_MODULES: Final = 60
"""Files that are read for one prompt."""
MAX_STEPS: Final = 5000
"""Look-ups of names for one prompt."""
_MAX_FAILURES: Final = 5
_MAX_HOPS: Final = 100
"""Modules between a use of a name and its definition."""
_MAX_PARTS: Final = 60
"""Parts whose names are looked up at once."""
_MAX_NAMES: Final = 400
"""Names that are looked up of one definition."""
_AROUND: Final = 20
"""Lines around the place of a failure that is in no definition."""

_CHAIN: Final = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*){0,5}")
_LOCATION: Final = re.compile(r"([\w@./-]{1,200}\.\w{1,4}):(\d{1,7})\b")
_GO_MODULE: Final = re.compile(r"^module[ \t]+(\S+)", re.MULTILINE)

Name = tuple[str, ...]
"""A dotted name."""


class Project:
    """The files of a repository; `read` returns a file's text, or None if the file is not text."""

    def __init__(self, files: Collection[str], read: Callable[[str], str | None]) -> None:
        self._files = {*files}
        self._read = read
        self._modules: dict[str, Module | None] = {}
        self._steps = 0
        self._by_end: dict[str, list[str]] = {}
        self._go_folders: dict[str, list[str]] = {}
        go_module = _GO_MODULE.search((read("go.mod") if "go.mod" in self._files else None) or "")
        self._go_module = go_module[1] if go_module else ""
        for path in sorted(self._files):
            pure = PurePosixPath(path)
            end = f"{pure.parent.name}/{pure.name}" if pure.name == "__init__.py" else pure.name
            self._by_end.setdefault(end, []).append(path)
            if pure.suffix == ".go" and not is_test_file(path):
                self._go_folders.setdefault(posixpath.dirname(path), []).append(path)

    def find(self, path: str) -> str:
        """Return the file of this path, else the only one that ends so; "" for none."""
        if path in self._files:
            return path
        ends = [each for each in self._by_end.get(path.rpartition("/")[2], ()) if each.endswith(f"/{path}")]
        return ends[0] if len(ends) == 1 else ""

    @property
    def modules(self) -> list[Module]:
        """Return the modules read so far."""
        return [each for each in self._modules.values() if each is not None]

    def load(self, path: str) -> Module | None:
        """Return the module in a file, None if it is not to be read."""
        if path not in self._modules and path in self._files and len(self._modules) < MAX_MODULES:
            text = self._read(path)
            self._modules[path] = None if text is None else Module(path, text.replace("\r\n", "\n"))
        return self._modules.get(path)

    def resolve(self, path: str, name: Name, seen: set[tuple[str, Name]]) -> list[tuple[str, str]]:
        """Find the definitions of a name that a file uses: pairs of a file and the name there."""
        self._steps += 1
        is_within = len(seen) < _MAX_HOPS and self._steps < MAX_STEPS
        module = self.load(path) if name and (path, name) not in seen and is_within else None
        if module is None:
            return []
        seen.add((path, name))
        dotted = [".".join(name[:count]) for count in range(1, len(name) + 1)]
        if matches := [(path, each) for each in dotted if each in module.definitions]:
            return matches
        for count in range(len(name), 0, -1):
            if dotted[count - 1] in module.names:
                spelled, original = module.names[dotted[count - 1]]
                rest = (*([original] if original else []), *name[count:])
                if not spelled:  # what the module calls its default
                    return self.resolve(path, rest, seen)
                if matches := self._resolve_in(self._locate(path, spelled), rest, seen):
                    return matches
                if original and path.endswith(".py"):
                    inner = f"{spelled}{'' if spelled.endswith('.') else '.'}{original}"
                    return self._resolve_in(self._locate(path, inner), name[count:], seen)
                return []
        for spelled in module.stars:
            if matches := self._resolve_in(self._locate(path, spelled), name, seen):
                return matches
        if path.endswith("__init__.py"):
            return self._resolve_in(self._locate(path, f".{name[0]}"), name[1:], seen)
        return []

    def _resolve_in(self, paths: Iterable[str], name: Name, seen: set[tuple[str, Name]]) -> list[tuple[str, str]]:
        return next((matches for path in paths if (matches := self.resolve(path, name, seen))), [])

    def _locate(self, path: str, spelled: str) -> list[str]:
        """Return the files that an import in a file means."""
        folder = posixpath.dirname(path)
        if path.endswith(".py"):
            return self._locate_python(folder, spelled)
        if path.endswith(".go"):
            return self._locate_go(folder, spelled)
        if not spelled.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(folder, spelled))
        stem, suffix = posixpath.splitext(base)
        stems = [base, *([stem] if suffix in SCRIPTS else [])]
        ends = [f"{each}{end}" for each in stems for end in ("", *SCRIPTS, *(f"/index{end}" for end in SCRIPTS))]
        return [each for each in ends if each in self._files][:1]

    def _locate_python(self, folder: str, spelled: str) -> list[str]:
        dots = len(spelled) - len(spelled.lstrip("."))
        inner = spelled.lstrip(".").replace(".", "/")
        parents = [str(each) for each in (PurePosixPath(folder), *PurePosixPath(folder).parents)]
        if dots:
            roots = parents[dots - 1 : dots]
        else:
            roots = [
                root for each in parents for root in (each, posixpath.join(each, "src"), posixpath.join(each, "lib"))
            ]
        ends = [f"{inner}.py", f"{inner}/__init__.py"] if inner else ["__init__.py"]
        for root in roots:
            for end in ends:
                if (path := posixpath.normpath(posixpath.join(root, end))) in self._files:
                    return [path]
        if dots or "/" not in inner:
            return []
        last = (
            "/".join(each.split("/")[-2:]) if each.endswith("__init__.py") else each.split("/")[-1] for each in ends
        )
        known = [path for end in last for path in self._by_end.get(end, ())[:_MAX_NAMES]]
        return [path for path in known if path.endswith(tuple(f"/{end}" for end in ends))][:1]

    def _locate_go(self, folder: str, spelled: str) -> list[str]:
        if spelled == ".":
            return self._go_folders.get(folder, [])
        parts = spelled.split("/")
        for count in range(len(parts)):
            if (inner := "/".join(parts[count:])) in self._go_folders:
                return self._go_folders[inner]
        return self._go_folders.get("", []) if spelled == self._go_module else []


def find_parts(task: str, report: TestReport | None, chosen: Sequence[str], project: Project) -> list[Part]:
    """Return the parts of files that a prompt needs, the most needed first.

    Counted are the failed tests of the report, and the definitions of the `chosen` files that the task names.
    """
    for path in chosen:
        project.load(path)
    finder = _Finder(project)
    tests = finder.find_tests(report, chosen) if report is not None and report.failures else []
    words = {*re.findall(r"\w+", task)}
    code = [each for each in chosen if not is_test_file(each)]
    first = finder.add(finder.find_uses(tests))
    first += finder.add(
        (path, name) for path in code for name in finder.list_definitions(path) if {*name.split(".")} <= words
    )
    names = finder.names
    second = finder.add(finder.find_uses(first))
    finder.add(finder.find_callers(names))
    finder.add(finder.find_uses(second))
    return finder.parts


def find_tested(task: str, tests: Sequence[str], chosen: Sequence[str], project: Project) -> list[Part]:
    """Return the code that files of tests are about, with what it uses of its own file.

    These are the definitions that the task names, else the definitions that the tests use.
    """
    finder = _Finder(project)
    words = {*re.findall(r"\w+", task)}
    named = [(path, name) for path in chosen for name in finder.list_definitions(path) if {*name.split(".")} <= words]
    uses = finder.find_uses(Part(path, 1, MAX_LINES) for path in tests)
    first = finder.add(
        [each for each in named if not is_test_file(each[0])] or [each for each in uses if not is_test_file(each[0])]
    )
    files = {part.path for part in first}
    second = finder.add(each for each in finder.find_uses(first) if each[0] in files)
    third = finder.add(each for each in finder.find_uses(second) if each[0] in files)
    return [*first, *second, *third]


class _Finder:
    """Collects parts, and the names that they use, by which the methods of long classes are chosen."""

    def __init__(self, project: Project) -> None:
        self.parts: list[Part] = []
        self._project = project
        self._known: set[tuple[str, str]] = set()
        self._imports_of: set[str] = set()
        """The files whose imports are among the parts."""
        self._used: set[str] = set()

    @property
    def names(self) -> set[str]:
        """The last names of the definitions that were added."""
        return {name.rpartition(".")[2] for _, name in self._known}

    def list_definitions(self, path: str) -> list[str]:
        """Return the names of the definitions of a file."""
        module = self._project.load(path)
        return [*module.definitions] if module else []

    def find_tests(self, report: TestReport, chosen: Sequence[str]) -> list[Part]:
        """Add the tests that failed, and the places that their errors name. These parts."""
        files = [each for each in chosen if is_test_file(each)]
        for failure in report.failures[:_MAX_FAILURES]:
            path, _, inner = failure.name.partition("::")
            path = self._project.find(path)
            name = inner.partition("[")[0].replace("::", ".") or failure.name
            for file in [path] if path else files:
                self.add(
                    (file, each) for each in self.list_definitions(file) if each == name or each.endswith(f".{name}")
                )
            locations = [matches[0] for matches in _LOCATION.finditer(failure.message)]
            for location in [failure.location, *locations[:_MAX_FAILURES]]:
                self._add_location(location)
            if path and not inner:  # a file that could not be imported
                self.parts.append(Part(path, 1, MAX_LINES))
        if not self.parts:
            self.parts += [Part(each, 1, MAX_LINES) for each in files]
        return [*self.parts]

    def _add_location(self, location: str) -> None:
        """Add the definition around a place such as `a.py:3`, else the lines around it."""
        path, _, number = location.rpartition(":")
        path = self._project.find(path)
        module = self._project.load(path)
        if module is None or not number.isdigit():
            return
        line = int(number)
        if name := module.enclosing(line):
            self.add([(path, name)])
        else:
            self.parts.append(Part(path, max(1, line - _AROUND), line + _AROUND))

    def find_uses(self, parts: Iterable[Part]) -> list[tuple[str, str]]:
        """Return the definitions of the names that are used in parts."""
        matches: list[tuple[str, str]] = []
        for part in [*parts][:_MAX_PARTS]:
            module = self._project.load(part.path)
            if module is None:
                continue
            scope = module.enclosing(part.start).rpartition(".")[0]
            for chain in [*dict.fromkeys(_CHAIN.findall(module.text_of(part)))][:_MAX_NAMES]:
                name = tuple(chain.split("."))
                self._used |= {*name}
                if name[0] in ("self", "cls", "this") and scope:
                    name = (*scope.split("."), *name[1:])
                matches += self._project.resolve(part.path, name, set())
            if is_test_file(part.path) and part.path.endswith(".py"):
                matches += self._find_fixtures(module, part)
        return matches

    def _find_fixtures(self, module: Module, part: Part) -> Iterator[tuple[str, str]]:
        """Return the fixtures of `conftest.py` that a test names."""
        words = {*re.findall(r"\w+", module.text_of(part))}
        for folder in PurePosixPath(part.path).parents:
            path = posixpath.normpath(posixpath.join(str(folder), "conftest.py"))
            yield from ((path, name) for name in self.list_definitions(path) if name in words)

    def find_callers(self, names: set[str]) -> Iterator[tuple[str, str]]:
        """Return the functions and methods that use one of the names."""
        for module in self._project.modules:
            for name, list_definitions in module.definitions.items():
                # Deeper ones are in those around them.
                if not is_test_file(module.path) and name.count(".") <= 1:
                    used = {word for each in list_definitions for word in re.findall(r"\w+", module.text_of(each))}
                    if names & used:
                        yield module.path, name

    def add(self, matches: Iterable[tuple[str, str]]) -> list[Part]:
        """Add definitions. The parts that are new."""
        new: list[Part] = []
        for path, name in matches:
            module = self._project.load(path)
            if module is not None and (path, name) not in self._known:
                self._known.add((path, name))
                added = [each for part in module.definitions[name] for each in self._shorten(module, name, part)]
                new += added
                self.parts += added
                if path not in self._imports_of:
                    self._imports_of.add(path)
                    self.parts += module.import_lines()
        return new

    def _shorten(self, module: Module, name: str, part: Part) -> list[Part]:
        """Return a definition, or the head and the used methods of a long class."""
        if part.end - part.start < MAX_LINES:
            return [part]
        inner = [each for each in module.definitions if each.startswith(f"{name}.") and each.count(".") <= 1]
        used = [each for each in inner if each.rpartition(".")[2] in {*self._used, "__init__", "constructor"}]
        methods = [each for matches in inner for each in module.definitions[matches]]
        head = min([part.start + MAX_LINES, *(each.start for each in methods)]) - 1
        shown = [each for matches in used for each in module.definitions[matches] if each.end - each.start < MAX_LINES]
        return [part._replace(end=max(part.start, head)), *shown]
