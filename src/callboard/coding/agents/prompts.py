"""The content of a prompt: the files that a task is about, and the text around the task.

Laws: file contents are shown unchanged. Files are chosen by words of the task, in time linear in the files. Prompts
show no example conversation, because examples teach models to make things up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.phases import Phase
from callboard.coding.workspace.repository_instructions import format_document
from callboard.configuration.coding import ProjectSettings
from callboard.text.display import escape
from callboard.text.surrogates import escape_surrogates

MAX_FILES: Final = 4
MAX_TEXT: Final = 18_000
"""Characters of the files that are shown, together: about 6,000 tokens."""
MAX_READ: Final = 400
"""Files that are searched for words of the task."""
MAX_TREE: Final = 200
MAX_DIFF: Final = 12_000

_SOURCES: Final = frozenset(
    (
        *(".py", ".go", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".rs", ".java", ".c", ".h", ".rb", ".php"),
        *(".cs", ".sh"),
    )
)
_HUNK: Final = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
# Relative paths: not in URLs, not absolute, and not upwards.
_PATH: Final = re.compile(r"(?<![\w/:.@~-])\w[\w@.-]*(?:/[\w@-][\w@.-]*)+(?<=\w)")
_SEVERAL_STYLES: Final = frozenset({".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx"})
_TESTS: Final = re.compile(r"\b(?:test|it)\(")
_TEST_FILE: Final = re.compile(r"(^|/)(tests?|__tests__|spec)/|(^|/)test_[^/]*$|[._-](test|spec)\.\w+$|_test\.\w+$")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_DEFINES: Final = re.compile(
    r"^[ \t]*(?:export\s+|default\s+|public\s+|static\s+|async\s+|pub\s+)*"
    r"(?:def|func|function|class|fn|struct|interface|type|const|let|var)\s+(?:\([^)\n]{0,80}\)\s*)?([A-Za-z_]\w*)",
    re.MULTILINE,
)


class Part(NamedTuple):
    """Lines of a file, from 1, both ends included."""

    path: str
    start: int
    end: int


def choose_files(task: str, files: Sequence[str], read: Callable[[str], str | None]) -> list[str]:
    """Return the files that a task is about, the likeliest first: files that it names, files that define its names, and
    their imports. `read` returns a file's text, or None if the file is not text.
    """
    words = set(_WORD.findall(task))
    sources = [name for name in files if PurePosixPath(name).suffix in _SOURCES][:MAX_READ]
    texts = {name: text for name in sources if (text := read(name))}
    scores = {name: _score(name, text, task, words) for name, text in texts.items()}
    named = [name for name, score in scores.items() if score >= _NAMED]
    for name in named:
        for other in texts:
            if other != name and _mentions(texts[name], other):
                scores[other] += _NAMED // 2
    ranked = sorted(texts, key=lambda each: (-scores[each], each))
    return [name for name in ranked if scores[name] and texts[name].strip()][:MAX_FILES]


_NAMED: Final = 10


def _score(name: str, text: str, task: str, words: set[str]) -> int:
    path = PurePosixPath(name)
    score = 0
    if name in task:
        score += 2 * _NAMED
    elif path.name in task:
        score += _NAMED
    defined = set(_DEFINES.findall(text))
    unusual = [word for word in defined & words if "_" in word.strip("_") or word != word.lower() or len(word) > 7]
    return score + _NAMED * bool(unusual) + min(len(defined & words), 3)


def _mentions(text: str, other: str) -> bool:
    """Return whether a file's imports may mean the other: by its path without suffix, or its last name."""
    path = PurePosixPath(other)
    stem = path.stem if path.stem not in ("__init__", "index", "mod") else path.parent.name
    lines = [
        line for line in text.splitlines()[:80] if re.match(r"\s*(import|from|use|#include|const .*require|\")", line)
    ]
    return any(re.search(rf"\b{re.escape(stem)}\b", line) for line in lines) if stem else False


def choose_lines(
    parts: Iterable[Part], files: Iterable[str], lines_of: Callable[[str], Sequence[str]]
) -> dict[str, list[int]]:
    """Return the numbers of the lines to show, by file: of the parts, then of whole files, as far as they fit."""
    shown: dict[str, set[int]] = {}
    room = MAX_TEXT
    ranges = [(part.path, range(part.start, part.end + 1)) for part in parts]
    ends = {path: len(lines_of(path)) for path in [*(path for path, _ in ranges), *files]}
    for path, numbers in [*ranges, *((path, range(1, end + 1)) for path, end in ends.items())]:
        new = {number for number in numbers if number <= ends[path]} - shown.get(path, set())
        cost = sum([len(lines_of(path)[number - 1]) + 1 for number in new])
        if new and cost <= room:
            room -= cost
            shown[path] = shown.get(path, set()) | new
    return {path: sorted(numbers) for path, numbers in shown.items()}


def format_lines(shown: Mapping[str, Sequence[int]], lines_of: Callable[[str], Sequence[str]]) -> str:
    """Format these lines of files; an empty line marks a gap."""
    parts: list[str] = []
    for path, numbers in shown.items():
        lines = lines_of(path)
        gaps = {number for before, number in pairwise(numbers) if number > before + 1}
        text = "\n".join([("\n" if number in gaps else "") + lines[number - 1] for number in numbers])
        parts.append(f"{escape(path)}{'' if len(numbers) == len(lines) else ' (parts of it)'}:\n{fence(text)}")
    return "\n\n".join(parts)


def format_tree(files: Sequence[str]) -> str:
    """Return the names of the files, or of the folders if there are many files."""
    if len(files) <= MAX_TREE:
        return "\n".join(map(escape, files))
    counts: dict[str, int] = {}
    for name in files:
        folder = "/".join(name.split("/")[:-1][:2]) or "."
        counts[folder] = counts.get(folder, 0) + 1
    rows = [f"{escape(folder)}/ ({count} files)" for folder, count in sorted(counts.items())]
    more = f"\n... and {len(rows) - MAX_TREE} folders more" if len(rows) > MAX_TREE else ""
    return "\n".join(rows[:MAX_TREE]) + more


def new_files(task: str, files: Collection[str]) -> list[str]:
    """Return the source files that a task names and that do not exist, in its order."""
    named = dict.fromkeys(_PATH.findall(task))
    return [name for name in named if PurePosixPath(name).suffix in _SOURCES and name not in files]


def example_test(new: Sequence[str], read: Callable[[str], str | None], files: Sequence[str]) -> list[str]:
    """Return the shortest test in the language of the first `new` test file, as an example of the project's style.

    Only for languages with several incompatible styles; in other languages small models only lengthen the example.
    """
    suffixes = [PurePosixPath(name).suffix for name in new if is_test_file(name)]
    suffix = next((each for each in suffixes if each in _SEVERAL_STYLES), "")
    if not suffix:
        return []
    tests = [name for name in files if is_test_file(name) and PurePosixPath(name).suffix == suffix]
    texts = {name: text for name in tests[:MAX_READ] if (text := read(name)) and _TESTS.search(text)}
    return sorted(texts, key=lambda name: len(texts[name]))[:1]


def is_test_file(path: str) -> bool:
    return _TEST_FILE.search(path) is not None


def format_change(diff: str) -> str:
    """A diff with the number of each line of the new text before it, as a review names them; see `format_diff`."""
    lines: list[str] = []
    number = remaining = 0
    for line in diff.split("\n"):
        if remaining <= 0:
            if hunk := _HUNK.match(line):
                number, remaining = int(hunk[1]), int(hunk[2] or 1)
            lines.append(line)
        elif line.startswith(("-", "\\")):
            lines.append(f"     {line}")
        else:
            lines.append(f"{number:4} {line}")
            number, remaining = number + 1, remaining - 1
    return format_diff("\n".join(lines))


def format_diff(diff: str) -> str:
    """Return a diff; a long diff is cut at the end of a line."""
    if len(diff) <= MAX_DIFF:
        return fence(diff, "diff") if diff else ""
    head = diff[:MAX_DIFF].rpartition("\n")[0]
    return f"{fence(head, 'diff')}\n({len(diff) - len(head)} characters more; read the files)"


def written_lines(diff: str) -> Mapping[str, set[int]]:
    """By file: the lines of the new text that a unified diff wrote; none of a file that only lost lines."""
    written: dict[str, set[int]] = {}
    name, number, remaining = "", 0, 0
    for line in diff.split("\n"):
        if remaining <= 0 and line.startswith("+++ "):
            path = line[4:].split("\t")[0].strip('"')
            name = path.removeprefix("b/")
            if path != "/dev/null":
                written.setdefault(name, set())
        elif hunk := _HUNK.match(line):
            number, remaining = int(hunk[1]), int(hunk[2] or 1)
        elif remaining > 0 and line.startswith("+"):
            written.setdefault(name, set()).add(number)
            number, remaining = number + 1, remaining - 1
        elif remaining > 0 and not line.startswith(("-", "\\")):
            number, remaining = number + 1, remaining - 1
    return written


def fence(text: str, language: str = "") -> str:
    """Return the text in a fence that it cannot end itself."""
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


_TAKE_OVER: Final = "Its work is above. Use what it found, and check what it says."

MAX_REFUSED: Final = 600
"""Characters of why an answer was refused."""

_WITH_TOOLS: Final = """\
You are an autonomous coding agent. You work in a repository by calling tools to read and search code, edit files and run tests. Every call is really run, and its result comes to you in the next message. Never write results yourself, and never claim what no tool has shown."""

_WITHOUT_TOOLS: Final = """\
You are a programmer who works on a repository. What you need of it is shown to you. Keep to what is asked."""

_TASKS: Final[Mapping[str, str]] = {
    "build": "Build this",
    "debug": "Mend this fault",
    "review": "Review this change",
    "triage": "Triage this report",
}


def instructions(project: ProjectSettings, repository: str, skills: str = "", *, has_tools: bool = True) -> str:
    """Return the system prompt: who the model is, what the project is, `repository`, its AGENTS.md, and the skills."""
    facts = [
        f"The project is {project.name}." if project.name else "",
        f"It is made with {', '.join(project.tech_stack)}." if project.tech_stack else "",
    ]
    parts = [_WITH_TOOLS if has_tools else _WITHOUT_TOOLS, " ".join([each for each in facts if each])]
    if repository:
        parts.append(f"The repository's own instructions (AGENTS.md):\n\n{format_document('AGENTS.md', repository)}")
    parts.append(skills if has_tools else "")
    return escape_surrogates("\n\n".join([each for each in parts if each]))


def phase_prompt(
    kind: str,
    task: str,
    phase: Phase,
    *,
    context: Mapping[str, str],
    summaries: Mapping[str, str],
    new_files: Sequence[str] = (),
    refused: Sequence[str] = (),
    wish: str = "",
) -> str:
    """Return the prompt that a phase begins with.

    `context` has what Callboard found out for it, by title, `summaries` what the phases before it answered, by name.
    `new_files` are those that the task names and that are not there yet. `refused` says why the answer before was refused.
    `wish` says what is to be added to an answer that was right.
    """
    if not phase.tools:
        # Without headings, which small models recite, and with what is to be done last, which is what they do.
        begin = wish or (f"Begin with the new file {', '.join(new_files)}." if new_files else "")
        reasons = "\n".join(refused)[:MAX_REFUSED]
        again = f"Another answer was not right: {reasons}" if refused else ""
        parts = [*context.values(), *summaries.values(), again, task.strip(), phase.prompt.strip(), begin]
        return escape_surrogates("\n\n".join([part for part in parts if part]))
    parts = [f"# {_TASKS[kind]}\n\n{task.strip()}"]
    parts += [f"# {title}\n\n{text}" for title, text in context.items() if text]
    parts += [f"# From the phase {name!r}\n\n{text}" for name, text in summaries.items() if text]
    parts.append(f"# Now: {phase.name}\n\n{phase.prompt.strip()}")
    return escape_surrogates("\n\n".join(parts))


def take_over_prompt(why: str, missing: str, *, gives_back: bool = False) -> str:
    """Return the prompt for a model that continues another model's conversation, or that gets its own back.

    `missing` lists the missing evidence.
    """
    text = f"{why}. Go on." if gives_back else f"You take over from another model, which is stuck: {why}. {_TAKE_OVER}"
    return "\n\n".join([each for each in (text, missing) if each])


def describe_traces(change: str, output: str | None) -> str:
    """Describe the traces of a call whose outcome is unknown: the job's diff so far, and the end of the output.

    `output` is None if no command was running.
    """
    diff = f"The change so far, as a diff:\n{change}" if change else "No file has changed so far."
    if output is None:
        return diff
    return (f"The end of what it had printed:\n{output}" if output else "It had printed nothing.") + f"\n{diff}"


def task_text(request: JobRequest) -> str:
    """Return the task in full: the description, the issue or pull request, the logs."""
    logs = f"Logs:\n```\n{request.logs}\n```" if request.logs else ""
    parts = [request.description.strip(), request.github_text, logs]
    text = escape_surrogates("\n\n".join([each for each in parts if each]))
    return text or f"Review the branch {request.branch}."
