"""Put the code blocks of a reply into the files.

Each block becomes a call of `put_code`, which is permitted, recorded and answered like any call from the model. Law:
the changes of one reply are undone before the next reply is applied, so a failed reply leaves no changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from callboard.coding.agents.code_blocks import CodeBlock, file_of_block, parse_code_blocks
from callboard.coding.agents.holes import Hole
from callboard.coding.agents.prompts import is_test_file
from callboard.coding.agents.small_repairs import Repair
from callboard.coding.edits.go_imports import fix_go_imports
from callboard.coding.edits.imports import add_imports
from callboard.coding.edits.remove_tests import cut_after_assertion, remove_failures
from callboard.coding.edits.replace_definitions import cut_broken_end, list_definitions, replace_definitions
from callboard.coding.edits.text_edits import Change, EditRefused, Span, split_lines
from callboard.coding.outlines import find_syntax_error
from callboard.coding.outlines.languages import find_language
from callboard.coding.test_runners import Failure
from callboard.coding.tools.action_tool import action
from callboard.coding.tools.file import SUBJECTS, FilePath, write_file
from callboard.coding.workspace.file_editor import MAX_BYTES, normalize_newlines, open_text, save
from callboard.coding.workspace.workspace import Workspace, get_workspace
from callboard.core import (
    Answer,
    Approve,
    Event,
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    ResultCanister,
    ResultReady,
)
from callboard.execution import ParallelExecutor, permit
from callboard.execution.approval import read_answer
from callboard.text.display import escape
from callboard.tools import Context, Ensemble, InvokerRegistry, Policy

MAX_COMPARED: Final = 4000
"""Lines of both texts of which it is looked where they differ, which takes their product's time."""


@action(approval=True, subjects=SUBJECTS)
def put_code(
    context: Context,
    path: FilePath,
    code: Annotated[str, "Whole functions or classes, the whole file, or lines"],
    line: Annotated[int, "The number of the first line that the code replaces, 0 for none"] = 0,
    end_line: Annotated[int, "The number of the last line, 0 for the same"] = 0,
) -> str:
    """Puts functions, classes and tests in the place of those of the same names in a file; what is new comes behind."""
    workspace = get_workspace(context)
    with workspace.edit_lock:
        try:
            opened = open_text(workspace, path)
        except FileNotFoundError:
            whole = (
                replace_definitions("", normalize_newlines(code), path)[0]
                if find_language(path)
                else normalize_newlines(code)
            )
            return str(write_file.function(context, path, whole))
        names: Sequence[str] = (f"line {line}" if end_line <= line else f"lines {line} to {end_line}",)
        if line:
            text = _replace_lines(opened.file.text, line, max(line, end_line), normalize_newlines(code))
            if find_syntax_error(text, path) and not find_syntax_error(opened.file.text, path):
                raise EditRefused(f"with this line, {escape(path)} does not parse")
        else:
            text, names = replace_definitions(opened.file.text, normalize_newlines(code), path)
        shown = save(workspace, opened, Change(text, _diff_spans(opened.lines, split_lines(text))))
    return f"Put {', '.join(names)} into {escape(path)}:\n{shown}"


def _replace_lines(text: str, first: int, last: int, code: str) -> str:
    """Return the text with this code instead of lines, indented as the first line was."""
    lines = text.split("\n")
    line = lines[first - 1]
    lines[first - 1 : last] = [line[: len(line) - len(line.lstrip())] + code]
    return "\n".join(lines)


def _diff_spans(old: list[str], new: list[str]) -> tuple[Span, ...]:
    """Return the spans where the lines differ; one span of all lines for a large text."""
    if len(old) + len(new) > MAX_COMPARED:
        return (Span(1, len(old), len(new)),)
    opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(Span(begin + 1, end - begin, to - at) for tag, begin, end, at, to in opcodes if tag != "equal")


def _written_lines(spans: Iterable[Span]) -> list[int]:
    """Return the numbers of the new lines of spans."""
    numbers, shift = list[int](), 0
    for span in spans:
        first = span.start + shift
        numbers += range(first, first + span.added)
        shift += span.added - span.removed
    return numbers


PUT_CODE: Final = "put_code"
MAX_REPLY: Final = 1_000_000
"""Characters of the longest reply whose code is applied."""
MAX_MESSAGE: Final = 150
"""Characters of the reason why a test was removed."""
MAX_BLOCKS: Final = 100
"""Code blocks of one reply that are applied."""


@dataclass(eq=False)
class CodeBlockApplier:
    """Applies the code blocks of one phase's replies."""

    workspace: Workspace
    policy: Policy
    approve: Approve
    """Asked where the policy says so."""
    _: KW_ONLY
    files: Sequence[str]
    """The files that a block without a path may be for."""
    new_files: Sequence[str]
    """Files that the task names and that do not exist yet."""
    guarded_files: Sequence[str]
    """Files that must not be changed."""
    emit: Callable[[Event], None]
    save: Callable[[], Awaitable[None]]
    """Writes what was emitted. A job that continues takes back the code of calls that it knows."""
    count: int = 0
    """How many calls there were before."""

    def __post_init__(self) -> None:
        self.failures: list[str] = []
        """Why code of the last reply could not be applied."""
        self.wrong_tests: list[str] = []
        """Removed tests of the last reply, with the messages of their failures."""
        self.calls = 0
        self.deferred: list[InvocationCanister] = []
        """The calls that somebody has to answer; then nothing of the last reply is applied."""
        self._registry = InvokerRegistry([Ensemble("coding_single", [put_code], connection=self.workspace)])
        self._executor = ParallelExecutor(
            self._registry, before_call=lambda call: self._decisions[call.identifier], limit=1
        )
        self._originals: dict[str, bytes | None] = {}
        self._last: list[InvocationCanister] = []
        self._decisions: dict[str, InvocationCanister | ResultCanister] = {}

    def is_allowed(self, path: str) -> bool:
        """Return whether the code of a file may change without a person's answer."""
        return self.policy.decide(self._registry[PUT_CODE], {"path": path}).permission == "allow"

    @property
    def changed_files(self) -> set[str]:
        """The files that the last reply changed."""
        return {path for path, data in self._originals.items() if data != self._read(path)}

    def changed_lines(self) -> dict[str, list[int]]:
        """Return the lines that the last reply wrote in each file of code."""
        changed: dict[str, list[int]] = {}
        for path in sorted(self.changed_files):
            if not is_test_file(path) and self.is_allowed(path):
                old, new = (
                    (data or b"").decode("utf-8", "replace") for data in (self._originals[path], self._read(path))
                )
                changed[path] = _written_lines(_diff_spans(split_lines(old), split_lines(new)))
        return changed

    async def add_lines(self, repairs: Iterable[Repair]) -> None:
        """Put lines into the code of the last reply, one after another."""
        for path, line, end_line, code in repairs:
            await self._run([self._call(path, code, line, end_line)])

    def keep(self) -> None:
        """Keep what the last reply changed, whatever the replies after it do."""
        self._originals = {}

    async def apply(self, reply: str, hole: Hole | None = None) -> None:
        """Apply the code blocks of a reply, or the line for a hole, after undoing the previous reply."""
        self.take_back()
        self.failures, self.wrong_tests = [], []
        if hole is not None:
            code = reply.strip()
            await self._run([self._call(hole.path, code, hole.line)] if reply and code != hole.text else [])
            return
        blocks = parse_code_blocks(reply) if len(reply) <= MAX_REPLY else []
        if len(reply) > MAX_REPLY or len(blocks) > MAX_BLOCKS:
            blocks = []
            self.failures.append(f"your answer is longer than {MAX_REPLY} characters or {MAX_BLOCKS} code blocks")
        calls = [call for block in blocks if (call := self._call_for(block)) is not None]
        if not calls and not self.failures:
            self.failures.append("there is no code in a fence in your answer")
        await self._run(calls)

    async def apply_without(self, failures: Iterable[Failure]) -> tuple[str, ...]:
        """Apply the code of the last reply again without the failed tests; return descriptions of them."""
        changed = self.changed_files
        failures = [*failures]
        failed = {each.name: self._read_line(each.location) for each in failures}
        self.wrong_tests += [f"{each.name}: {' '.join(each.message.split())[:MAX_MESSAGE]}" for each in failures]
        removed: dict[str, None] = {}
        self.take_back()
        last = [(call.arguments["path"], call.arguments["code"]) for call in self._last if call.arguments]
        # Tests in code without names cannot be identified.
        known = [(path, code) for path, code in last if path in changed and _names(code, path)]
        calls = []
        for path, code in known:
            remaining, descriptions = remove_failures(code, path, failed)
            removed |= dict.fromkeys(descriptions)
            if _names(remaining, path):
                calls.append(self._call(path, remaining))
        await self._run(calls)
        return tuple(removed)

    async def _run(self, calls: list[InvocationCanister]) -> None:
        self._last = calls
        for index, call in enumerate(calls):
            self.emit(InvocationStarted(index, call.identifier, call.name))
            self.emit(InvocationEnded(index, call.identifier, call.name, call.arguments, call.raw))
        self.deferred = []
        self._decisions = {
            call.identifier: await permit(self._registry[PUT_CODE], call, self.policy, self._ask) for call in calls
        }
        if self.deferred:
            return
        await self.save()
        async with aclosing(self._executor.run(calls)) as events:
            async for event in events:
                if isinstance(event, ResultReady):
                    self.calls += 1
                    if event.canister.error is not None:
                        self.failures.append(event.canister.error.message.removeprefix(f"{EditRefused.__name__}: "))
                self.emit(event)

    def _call_for(self, block: CodeBlock) -> InvocationCanister | None:
        """Return the call that applies a block, None if the block is for no file."""
        data = {name: self._read(name) for name in self.files}
        texts = {name: text.decode("utf-8", "replace") for name, text in data.items() if text is not None}
        names = {name: _names(text, name) for name, text in texts.items()}
        suffixes = block.suffixes or dict.fromkeys(PurePosixPath(name).suffix for name in self.files)
        paths = [block.path] if block.path else [f"code{suffix}" for suffix in suffixes]
        own = next(filter(None, [_names(block.code, path) for path in paths]), ())
        path = file_of_block(block, self.files, names, own, self.new_files)
        if not path:
            self.failures.append("it is not said which file some of the code is for: write its path before the fence")
            return None
        if path in self.guarded_files:
            self.failures.append(f"{path} stays as it is: its tests are the measure")
            return None
        code = _cut(block.code, path) if block.is_cut else block.code
        if path.endswith(".py"):
            others = {name: defined for name, defined in names.items() if name != path}
            code = add_imports(code, others, texts.get(path, ""))
        elif path.endswith(".go"):
            code = fix_go_imports(code, texts.get(path, ""))
        return self._call(path, code)

    def _call(self, path: str, code: str, line: int = 0, end_line: int = 0) -> InvocationCanister:
        self._originals.setdefault(path, self._read(path))
        self.count += 1
        arguments = {"path": path, "code": code, **({"line": line, "end_line": end_line} if line else {})}
        raw = msgspec.json.encode(arguments).decode()
        return InvocationCanister(identifier=f"code_block_{self.count}", name=PUT_CODE, arguments=arguments, raw=raw)

    async def _ask(self, invocation: InvocationCanister, why: str) -> Answer:
        answer = self.approve(invocation, why)
        answer = await answer if inspect.isawaitable(answer) else answer
        answered = read_answer(invocation, answer)
        if answered.verdict == "defer":
            self.deferred.append(invocation)
        else:
            self.emit(replace(answered, timestamp=datetime.now(UTC)))
        return answer

    def take_back(self) -> None:
        """Undo the changes of the last reply, unless they are kept."""
        for path, data in self._originals.items():
            if data is not None:
                self.workspace.files.write(path, data)
            elif self._read(path) is not None:
                self.workspace.files.delete(path)
        self._originals = {}

    def _read_line(self, location: str) -> str:
        """Return the line at a location such as `a.py:3`, "" if there is none."""
        path, _, number = location.rpartition(":")
        lines = (self._read(path) or b"").decode("utf-8", "replace").split("\n") if path else []
        return lines[int(number) - 1] if number.isdecimal() and 0 < int(number) <= len(lines) else ""

    def _read(self, path: str) -> bytes | None:
        try:
            return self.workspace.files.read(path, MAX_BYTES)
        except OSError:
            return None


def _cut(code: str, path: str) -> str:
    """Return the whole part of code that was cut off. Only tests may end early: a function would do half its work."""
    tests = cut_after_assertion(code, path) if is_test_file(path) else ""
    return tests or cut_broken_end(code, path)


def _names(code: str, path: str) -> tuple[str, ...]:
    try:
        return list_definitions(code, path)
    except EditRefused:
        return ()
