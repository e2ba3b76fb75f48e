"""Write a run into its journal: the new canisters before each action, and each call when it ends.

Law: each item is saved once. `end_call` saves the result of a call that ran. The conversation has other results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from callboard.core import Canister, Clock, InvocationCanister, Journal, ResultCanister, RolledBack, ToolDeclaration
from callboard.loop import Action, Finish, Loop


class RunJournal:
    """The journal of one run, and how much of the run it has.

    Args:
        journal: The journal to write to.
        find_loop: Returns the loop of the current agent.
        clock: The time in UTC.
        history_length: Canisters of the conversation before the run.
        saved: Canisters of the transcript that are already saved.
    """

    def __init__(
        self, journal: Journal, find_loop: Callable[[], Loop], clock: Clock, *, history_length: int, saved: int
    ) -> None:
        self.saved = saved
        self._journal = journal
        self._find_loop = find_loop
        self._clock = clock
        self._history_length = history_length
        self._end = journal.progress.state if journal.progress else ""
        """The decided end of the run, if the run was interrupted after that."""
        self._ended: set[str] = set()
        """Calls of the last reply whose results are saved but not yet in the transcript."""

    def take_back(self, identifiers: Collection[str]) -> None:
        """Remember the results at the transcript's end. They enter it again with the results of the other calls."""
        self._ended.update(identifiers)
        self.saved -= len(identifiers)

    async def save(self, action: Action | None = None, *, begins: bool = False) -> None:
        """Save the new canisters of the transcript, and the end of the run if the action ends it.

        `begins` says that only calls follow, and that they begin at once.
        """
        loop = self._find_loop()
        grown = loop.transcript[self.saved :]
        items = [each for each in grown if not (isinstance(each, ResultCanister) and each.invocation_id in self._ended)]
        finish = action if isinstance(action, Finish) else None
        # A failure may be temporary, so it is decided again.
        is_decided = finish is not None and finish.state not in ("failed", self._end)
        if items or is_decided:
            await self._write(items, loop, finish, begins=begins)
        self.saved += len(grown)
        if any(isinstance(each, ResultCanister) for each in grown):
            self._ended.clear()

    def declare(self, tools: Sequence[ToolDeclaration]) -> None:
        self._journal.declare(tools)

    async def roll_back(self, rolled_back: RolledBack, saved: int) -> None:
        """Save that the conversation was rolled back, and that `saved` canisters of it are saved."""
        await self._write([rolled_back], self._find_loop(), None)
        self.saved = saved
        self._ended.clear()

    def call_key(self, invocation: InvocationCanister) -> str:
        return self._journal.call_key(invocation)

    async def begin_call(
        self, invocation: InvocationCanister, idempotent: bool
    ) -> ResultCanister | None:  # the signature of the port
        return await self._journal.begin_call(invocation, idempotent)

    async def end_call(self, invocation: InvocationCanister, result: ResultCanister) -> None:
        completed = replace(self._find_loop().complete_result(result), timestamp=self._clock())
        await self._journal.end_call(invocation, completed)
        self._ended.add(invocation.identifier)

    async def _write(
        self, items: Sequence[Canister | RolledBack], loop: Loop, finish: Finish | None, *, begins: bool = False
    ) -> None:
        progress = replace(loop.progress(self._clock(), finish), history_length=self._history_length)
        await self._journal.save(items, progress, begins=begins)
