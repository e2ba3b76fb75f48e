"""Read the definitions and imports of one file, for looking up names.

Law: reading is linear in the text; a line or a statement that is too long counts up to a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from callboard.coding.agents.prompts import Part
from callboard.coding.outlines import make_outline

MAX_LINES: Final = 200
"""Maximum lines of a definition. A longer class counts with its head and the used methods."""
SCRIPTS: Final = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts")
"""The suffixes of files in JavaScript and TypeScript."""
_MAX_IMPORTS: Final = 40
"""Import statements of a file that are shown."""
_MAX_OVERLOADS: Final = 5
_PYTHON: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]{0,2000}\)|[^\n]*)|import[ \t]+([^\n]*))", re.MULTILINE
)
_SCRIPT: Final = re.compile(
    r"""^[ \t]*(import|export)\s{1,9}(?:type\s{1,9})?([\w$*{},\s]{1,400}?)\bfrom\s{0,9}['"]([^'"\n]{1,200})['"]"""
    r"""|\b(?:const|let|var)\s{1,9}([\w$]{1,99}|\{[^{}]{0,400}\})\s{0,9}=\s{0,9}require\(['"]([^'"\n]{1,200})['"]\)""",
    re.MULTILINE,
)
_DEFAULT: Final = re.compile(
    r"^(?:export\s{1,9}default|module\.exports\s{0,9}=)\s{1,9}(?:(?:async|abstract)\s{1,9})?"
    r"(?:function\*?\s{1,9}|class\s{1,9})?([\w$]{1,99})",
    re.MULTILINE,
)
_GO: Final = re.compile(r'^[ \t]*(?:import[ \t]+)?(?:([\w.]+)[ \t]+)?"([\w./~-]+)"[ \t]*$', re.MULTILINE)
_ASSIGNED: Final = re.compile(
    r"^(?:export[ \t]+)?(?:(?:const|let|var)[ \t]+)?([^\W\d][\w$]*)[ \t]*(?::[^=\n]{0,200})?=(?!=)"
)


class Module:
    """The definitions and imports of one file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.lines = text.split("\n")
        self.imports: list[int] = []
        """The first lines of its import statements."""
        self.definitions: dict[str, list[Part]] = {}
        """By dotted name, such as `Cart.total`: where it is defined, more than once if it is overloaded."""
        self.names: dict[str, tuple[str, str]] = {}
        """Imported name -> the module as the import spells it, and the name there ("" for the module)."""
        self.stars: list[str] = []
        """The modules that all names are imported from."""
        outline = make_outline(text, path)
        for symbol in outline.symbols if outline else ():
            parts = self.definitions.setdefault(symbol.path, [])
            if len(parts) < _MAX_OVERLOADS:
                parts.append(Part(path, self._find_start(symbol.line), symbol.end))
        self.imports = outline.imports[:_MAX_IMPORTS] if outline else []
        if path.endswith(".py"):
            self._read_python(text.replace("\\\n", " "))
        elif path.endswith(".go"):
            self.names = {matches[1] or _go_package(matches[2]): (matches[2], "") for matches in _GO.finditer(text)}
            self.stars = ["."]
        else:
            self._read_script(text)
        self._read_assignments()

    def text_of(self, part: Part) -> str:
        """Return the text of a part, at most `MAX_LINES`."""
        return "\n".join(self.lines[part.start - 1 : min(part.end, part.start + MAX_LINES - 1)])

    def enclosing(self, line: int) -> str:
        """Return the name of the innermost definition around a line, "" for none."""
        around = [
            (part.end - part.start, name)
            for name, parts in self.definitions.items()
            for part in parts
            if part.start <= line <= part.end
        ]
        return min(around)[1] if around else ""

    def import_lines(self) -> list[Part]:
        """Return the import statements."""
        return [Part(self.path, line, self._find_statement_end(line)) for line in self.imports]

    def _find_start(self, line: int) -> int:
        """Return the line of the first decorator above a definition."""
        while line > 1 and self.lines[line - 2].lstrip().startswith("@"):
            line -= 1
        return line

    def _find_statement_end(self, line: int) -> int:
        """Return the line that closes the brackets which the statement opens."""
        depth = 0
        for number in range(line - 1, min(len(self.lines), line + MAX_LINES)):
            text = self.lines[number]
            depth += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
            if depth <= 0:
                return number + 1
        return line

    def _read_assignments(self) -> None:
        """Variables at the top of the text. Each ends before the next line that begins at the margin."""
        name, start, end = "", 0, 0
        for number, line in enumerate([*self.lines, "end"], 1):
            if line.strip() and line[0] not in " \t)]}":
                if name and name not in self.definitions and name not in self.names:
                    self.definitions[name] = [Part(self.path, start, min(end, start + MAX_LINES - 1))]
                matches = _ASSIGNED.match(line)
                name, start = (matches[1], number) if matches else ("", 0)
            end = number if line.strip() else end

    def _read_python(self, text: str) -> None:
        for matches in _PYTHON.finditer(text):
            module, listed, modules = matches.groups()
            for name, local in _read_pairs(re.sub(r"#[^\n]*|[()]", "", listed or modules), " as "):
                if module and name == "*":
                    self.stars.append(module)
                elif module:
                    self.names[local] = (module, name)
                else:
                    self.names[local] = (name, "")
                    if local == name:
                        top = name.partition(".")[0]
                        self.names.setdefault(top, (top, ""))

    def _read_script(self, text: str) -> None:
        if default := _DEFAULT.search(text):
            self.names["default"] = ("", default[1])
        for matches in _SCRIPT.finditer(text):
            keyword, listed, module, bound, required = matches.groups()
            module = module or required
            outside, _, inside = (listed or bound).partition("{")
            for name, local in _read_pairs(inside.replace("}", " ").replace("type ", ""), ":" if bound else " as "):
                self.names[local] = (module, name)
            for name, local in _read_pairs(outside, " as "):
                if name != "*":
                    self.names[local] = (module, "" if bound else "default")
                elif keyword == "export" and local == "*":
                    self.stars.append(module)
                else:
                    self.names[local] = (module, "")


def _read_pairs(listed: str, between: str) -> Iterator[tuple[str, str]]:
    """Return the names of a list, each with the name that it gets: `a as b, c`."""
    for each in listed.split(","):
        name, _, local = " ".join(each.split()).partition(between)
        if name:
            yield name.strip(), (local or name).strip()


def _go_package(path: str) -> str:
    """Return the name of a package by its import path."""
    parts = path.split("/")
    return parts[-2] if len(parts) > 1 and re.fullmatch(r"v\d+", parts[-1]) else parts[-1]
