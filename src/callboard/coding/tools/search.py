"""The tool `search`: find texts, files and definitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal

from callboard.coding.outlines import make_outline
from callboard.coding.outlines.languages import LANGUAGES
from callboard.coding.search import Glob, Query, parse_query, search_lines
from callboard.coding.tools.action_tool import ActionTool, action
from callboard.coding.workspace.directory_walk import files_below
from callboard.coding.workspace.file_editor import MAX_BYTES, NotText, decode
from callboard.coding.workspace.workspace import Workspace, get_workspace
from callboard.text.display import escape
from callboard.text.truncate import truncate
from callboard.tools import Context
from callboard.tools.context import Permits, everything

SECONDS: Final = 30.0
"""One search."""
MOST: Final = 1000
"""Largest number of results of a call."""
_LINE: Final = 303
"""Characters of a line that are shown."""
_MENTIONS: Final = 5
"""Files that are named where there is no definition."""

Directory = Annotated[str, "Where to look: a directory, or a file"]
Pattern = Annotated[str, "A regular expression"]
IgnoreCase = Annotated[bool, "Whether upper and lower case are the same"]
MaxResults = Annotated[int, "Lines, files or definitions at most"]
SUBJECTS: Final = {"directory": "path"}
ALIASES: Final = {"path": "directory"}


class _Results:
    """Lines of results up to a limit, and notes. Files that `permits` denies have none.

    That there are such files is said whether they match or not: else what is in them could be guessed, search by search.
    """

    def __init__(self, limit: int, permits: Permits) -> None:
        self._limit = max(1, min(limit, MOST))
        self._permits = permits
        self._lines: list[str] = []
        self.notes: list[str] = [] if permits is everything else ["files that a rule keeps this call from are left out"]

    def shows(self, path: str) -> bool:
        """Return whether the rules let this file be shown."""
        return self._permits(path)

    @property
    def full(self) -> bool:
        return len(self._lines) > self._limit

    def add(self, line: str) -> None:
        self._lines.append(line)

    def text(self, nothing: str) -> str:
        shown = self._lines[: self._limit]
        limited = [f"... (limited to {self._limit} results)"] if self.full else []
        return "\n".join([*(shown or [nothing]), *limited, *[f"({note})" for note in self.notes]])


@action(aliases=ALIASES, idempotent=True, subjects=SUBJECTS)
async def grep(
    context: Context,
    pattern: Pattern,
    directory: Directory = ".",
    *,
    file_pattern: Annotated[str, "Names of files, such as *.py; with a slash, paths, such as src/**/*.py"] = "*",
    case_insensitive: IgnoreCase = False,
    max_results: MaxResults = 100,
) -> str:
    """Searches the lines of files for a regular expression. Gives path:line:text."""
    query = parse_query(pattern, ignore_case=case_insensitive)
    return await _search_lines(context, query, directory, file_pattern, max_results)


@action(idempotent=True, subjects={"path": "path"})
async def find_in_file(
    context: Context,
    path: Annotated[str, "The file's path"],
    pattern: Pattern,
    case_insensitive: IgnoreCase = False,
) -> str:
    """Searches the lines of one file for a regular expression. Gives path:line:text."""
    query = parse_query(pattern, ignore_case=case_insensitive)
    return await _search_lines(context, query, path, "*", MOST)


@action(aliases=ALIASES, idempotent=True, subjects=SUBJECTS)
async def find_files(
    context: Context,
    pattern: Annotated[str, "Names of files, such as *_test.go; with a slash, paths, such as src/**/*.py"],
    directory: Directory = ".",
    max_results: MaxResults = 100,
) -> str:
    """Finds files by their names. Gives their paths."""
    workspace = get_workspace(context)
    results = _Results(max_results, context.permits)
    begin = workspace.files.canonical(directory) or "."
    paths, cut = await asyncio.to_thread(files_below, workspace.files, begin)
    if cut:
        results.notes.append(f"only the first {len(paths)} files were looked at; name a directory")
    glob = Glob(pattern)
    for path in paths:
        if glob.matches(path) and results.shows(path):
            results.add(escape(path))
        if results.full:
            break
    return results.text(f"no file is named {pattern}")


@action(aliases=ALIASES, idempotent=True, subjects=SUBJECTS)
async def find_definition(
    context: Context,
    name: Annotated[str, "A function, class, method or type, such as run, or Server.run"],
    directory: Directory = ".",
    language: Annotated[
        Literal["python", "go", "javascript", "typescript", "rust", "java", "c"] | None, "By default all of these"
    ] = None,
) -> str:
    """Finds where a function, class, method or type is defined. Gives path:line:text."""
    workspace = get_workspace(context)
    results = _Results(100, context.permits)
    mentions: list[str] = []
    names = {language, "tsx"} if language == "typescript" else {language}
    suffixes = [suffix for each in LANGUAGES if language is None or each.name in names for suffix in each.suffixes]
    query = Query(name.rpartition(".")[2] or name, fixed=True)
    sources = f"*{{{','.join(suffixes)}}}"
    # Closed here: what searches is a process, which nobody would wait for.
    async with aclosing(_iterate_matches(workspace, query, directory, sources, results)) as matches:
        async for path, lines in matches:
            definitions = await asyncio.to_thread(_find_definitions, workspace, path, name)
            for number, text in definitions:
                results.add(_format_result(path, number, text))
            if not definitions:
                mentions += [_format_result(path, *lines[0])] if len(mentions) < _MENTIONS else []
            if results.full:
                break
    nothing = f"no definition of {name} was found"
    return results.text("\n".join([nothing, *(["it is mentioned at:", *mentions] if mentions else [])]))


async def _search_lines(context: Context, query: Query, start: str, file_pattern: str, limit: int) -> str:
    workspace = get_workspace(context)
    results = _Results(limit, context.permits)
    if query.fixed:
        results.notes.append("the pattern is no regular expression; it was searched for as it is")
    async with aclosing(_iterate_matches(workspace, query, start, file_pattern, results)) as matches:
        async for path, lines in matches:
            for number, text in lines:
                results.add(_format_result(path, number, text))
            if results.full:
                break
    return results.text(f"no line matches {query.pattern}")


async def _iterate_matches(
    workspace: Workspace, query: Query, start: str, file_pattern: str, results: _Results
) -> AsyncGenerator[tuple[str, Sequence[tuple[int, str]]]]:
    """Yield matches until the time is up."""
    end = asyncio.get_running_loop().time() + SECONDS
    async with aclosing(
        search_lines(workspace, query, start, Glob(file_pattern), results.notes.append)
    ) as matching_files:
        while True:
            try:
                async with asyncio.timeout_at(end):
                    match = await anext(matching_files, None)
            except TimeoutError:
                results.notes.append(f"stopped after {SECONDS:g} s; name a directory or a file_pattern")
                return
            if match is None:
                return
            if results.shows(match[0]):
                yield match


def _find_definitions(workspace: Workspace, path: str, name: str) -> list[tuple[int, str]]:
    try:
        text = decode(workspace.files.read(path, MAX_BYTES)).text
    except (OSError, NotText):
        return []
    outline = make_outline(text, path)
    lines = text.split("\n")
    symbols = outline.symbols if outline is not None else []
    matching_symbols = [each for each in symbols if name in (each.name, each.path) or each.path.endswith(f".{name}")]
    return [(each.line, lines[each.line - 1]) for each in matching_symbols]


def _format_result(path: str, number: int, text: str) -> str:
    return f"{escape(path)}:{number}:{truncate(text, _LINE)}"


search = ActionTool(
    "search",
    "Finds texts, files and definitions. Hidden directories, node_modules, vendor, .venv, __pycache__, target, dist "
    "and build are left out.",
    {
        "grep": grep,
        "find_files": find_files,
        "find_in_file": find_in_file,
        "find_definition": find_definition,
    },
    default="grep",
    cli={"-t": "pattern", "-i": "case_insensitive", "-n": "max_results"},
)
