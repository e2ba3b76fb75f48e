"""Code that a model wrote in words, put into the files.

Owns the way from a reply to calls of `put_code`, which are calls like all others: permitted, recorded, answered. Knows
nothing of phases.
Law: what one reply wrote is taken back before the next one is put, so that failures leave nothing behind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing

import msgspec

from callboard.coding.agents.code_blocks import Block, place_of, read_blocks
from callboard.coding.edits.add_imports import add_imports
from callboard.coding.edits.replace_definitions import cut_broken_end, list_definitions, remove_tests
from callboard.coding.edits.result import EditRefused
from callboard.coding.workspace.text_file import MAX_BYTES
from callboard.coding.workspace.workspace import Workspace
from callboard.core import (
    Approve,
    Event,
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    ResultCanister,
    ResultReady,
)
from callboard.execution import ParallelExecutor, permit
from callboard.tools import Ensemble, Policy, Roster

PUT = "put_code"


class Dictation:
    """The code of one phase. `failures` says what of the last reply could not be put; `files` are those that are known,
    `wanted` those that the task names and that are not there yet, `guarded` those that stay as they are.
    """

    def __init__(
        self,
        workspace: Workspace,
        policy: Policy,
        approve: Approve,
        *,
        files: Sequence[str],
        wanted: Sequence[str],
        guarded: Sequence[str],
    ) -> None:
        from callboard.coding.tools.put_code import put_code  # noqa: PLC0415  # tree-sitter comes with it

        self.failures: list[str] = []
        self._workspace = workspace
        self._policy = policy
        self._approve = approve
        self._files = files
        self._wanted = wanted
        self._guarded = guarded
        self._roster = Roster([Ensemble("coding_single", [put_code], connection=workspace)])
        self._group = ParallelExecutor(self._roster, before_call=self._permitted, limit=1)
        self._before: dict[str, bytes | None] = {}
        self._count = 0
        self._last: list[InvocationCanister] = []

    @property
    def wrote(self) -> set[str]:
        """The files that the last reply changed."""
        return {path for path, data in self._before.items() if data != self._bytes(path)}

    async def put(self, reply: str) -> AsyncGenerator[Event]:
        """Puts the code of a reply, in the place of what the one before wrote."""
        self._take_back()
        self.failures = []
        calls = [call for block in read_blocks(reply) if (call := self._call(block)) is not None]
        if not calls and not self.failures:
            self.failures.append("there is no code in a fence in your answer")
        async with aclosing(self._run(calls)) as events:
            async for event in events:
                yield event

    async def put_without(self, failed: Collection[str]) -> AsyncGenerator[Event]:
        """Puts the code of the last reply once more, without the tests that failed."""
        wrote = self.wrote
        self._take_back()
        last = [(call.arguments["path"], call.arguments["code"]) for call in self._last if call.arguments]
        # What has no names has no tests that could be told apart.
        known = [(path, code) for path, code in last if path in wrote and _names(code, path)]
        left = [(path, remove_tests(code, path, failed)) for path, code in known]
        calls = [self._put(path, code) for path, code in left if _names(code, path)]
        async with aclosing(self._run(calls)) as events:
            async for event in events:
                yield event

    async def _run(self, calls: list[InvocationCanister]) -> AsyncGenerator[Event]:
        self._last = calls
        for index, call in enumerate(calls):
            yield InvocationStarted(index, call.identifier, call.name)
            yield InvocationEnded(index, call.identifier, call.name, call.arguments, call.raw)
        async for event in self._group.run(calls):
            if isinstance(event, ResultReady) and event.canister.error is not None:
                self.failures.append(event.canister.error.message)
            yield event

    def _call(self, block: Block) -> InvocationCanister | None:
        """The call that puts a block, None for one that is for no file."""
        defined = {name: text for name in self._files if (text := self._text(name)) is not None}
        names = {name: _names(text, name) for name, text in defined.items()}
        suffix = next(iter(block.suffixes), ".py")
        own = _names(block.code, block.path or f"code{suffix}")
        path = place_of(block, self._files, names, own, self._wanted)
        if not path:
            self.failures.append("it is not said which file some of the code is for: write its path before the fence")
            return None
        if path in self._guarded:
            self.failures.append(f"{path} stays as it is: its tests are the measure")
            return None
        code = cut_broken_end(block.code, path) if block.is_cut else block.code
        if path.endswith(".py") and self._bytes(path) is None:
            code = add_imports(code, names)
        return self._put(path, code)

    def _put(self, path: str, code: str) -> InvocationCanister:
        self._before.setdefault(path, self._bytes(path))
        self._count += 1
        arguments = {"path": path, "code": code}
        raw = msgspec.json.encode(arguments).decode()
        return InvocationCanister(identifier=f"spoken_{self._count}", name=PUT, arguments=arguments, raw=raw)

    async def _permitted(self, invocation: InvocationCanister) -> InvocationCanister | ResultCanister:
        return await permit(self._roster[PUT], invocation, self._policy, self._approve)

    def _take_back(self) -> None:
        for path, data in self._before.items():
            if data is not None:
                self._workspace.files.write(path, data)
            elif self._bytes(path) is not None:
                self._workspace.files.delete(path)
        self._before = {}

    def _bytes(self, path: str) -> bytes | None:
        try:
            return self._workspace.files.read(path, MAX_BYTES)
        except OSError:
            return None

    def _text(self, path: str) -> str | None:
        data = self._bytes(path)
        return data.decode("utf-8", "replace") if data is not None else None


def _names(code: str, path: str) -> tuple[str, ...]:
    try:
        return list_definitions(code, path)
    except EditRefused:
        return ()
