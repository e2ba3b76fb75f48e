"""Write a run into its journal: what the conversation grew by before each action, and each call when it ends.

Law: each item is saved once. A result is saved by `end_call` where its call ran, with the conversation where it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from callboard.core import Canister, Clock, InvocationCanister, Journal, ResultCanister, RolledBack
from callboard.loop import Action, Finish, Loop


class RunJournal:
    """The journal of one run, and how much of the run it has.

    Args:
        journal: Where it is written.
        find_loop: Gives the loop of the agent that has the conversation.
        clock: The time in UTC.
        history_length: Canisters of the conversation before the run.
        saved: Canisters of the transcript that are saved already.
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
        """The end of the run that was decided before it was interrupted."""
        self._ended: set[str] = set()
        """The calls of the last reply whose results are saved, and not in the transcript yet."""

    def take_back(self, identifiers: Collection[str]) -> None:
        """Remember the results at the transcript's end, which come into it again with those of the other calls."""
        self._ended.update(identifiers)
        self.saved -= len(identifiers)

    async def save(self, action: Action | None = None, *, begins: bool = False) -> None:
        """Save what the transcript has grown by, and that the run ends where that is the action that follows.

        `begins` says that nothing follows but calls, which begin at once.
        """
        loop = self._find_loop()
        grown = loop.transcript[self.saved :]
        items = [each for each in grown if not (isinstance(each, ResultCanister) and each.invocation_id in self._ended)]
        finish = action if isinstance(action, Finish) else None
        # A failure may be of the moment, so it is decided again.
        is_decided = finish is not None and finish.state not in ("failed", self._end)
        if items or is_decided:
            await self._write(items, loop, finish, begins=begins)
        self.saved += len(grown)
        if any(isinstance(each, ResultCanister) for each in grown):
            self._ended.clear()

    async def roll_back(self, rolled_back: RolledBack, saved: int) -> None:
        """Save that the conversation goes on from where it was, of which so many canisters are saved."""
        await self._write([rolled_back], self._find_loop(), None)
        self.saved = saved
        self._ended.clear()

    def call_key(self, invocation: InvocationCanister) -> str:
        return self._journal.call_key(invocation)

    async def begin_call(
        self, invocation: InvocationCanister, idempotent: bool
    ) -> ResultCanister | None:  # as the port has it
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
