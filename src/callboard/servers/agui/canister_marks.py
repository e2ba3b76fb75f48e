"""Which message each canister of a conversation begins with, so that a client's messages can be rolled back with it."""

from __future__ import annotations


class CanisterMarks:
    """The marks of a conversation; messages are named by their ordinals.

    Where canisters are fed, they are the conversation. Else the events of replies tell which canisters they leave: one
    for what is said between two calls, one for each call, one for each result.

    Args:
        count: How many canisters the conversation has before the first that is marked.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._marks = [0] * count
        self._reply_begin = count
        """How many canisters there are before the reply that comes."""
        self._speech = 0
        """Where the canister of what is said just now begins; 0 where nothing was."""
        self._has_canisters = False

    def add_canister(self, ordinal: int) -> None:
        """A canister that is fed."""
        if not self._has_canisters:
            self._has_canisters = True
            del self._marks[self._count :]
        self._speech = 0
        self._marks.append(ordinal)

    def begin_saying(self, ordinal: int) -> None:
        """Something is said, in this message at the earliest."""
        self._speech = self._speech or ordinal

    def end_saying(self) -> None:
        """What was said is a canister."""
        if self._speech:
            self.add(self._speech)
        self._speech = 0

    def add(self, ordinal: int) -> None:
        """A canister that events tell of."""
        if not self._has_canisters:
            self._marks.append(ordinal)

    def end_reply(self) -> None:
        """What was marked stays, whatever becomes of the next reply."""
        self._reply_begin = len(self._marks)

    def revoke_reply(self) -> None:
        """The canisters of the reply that comes are none."""
        self._speech = 0
        if not self._has_canisters:
            del self._marks[self._reply_begin :]

    def roll_back(self, to: int) -> tuple[int | None, bool]:
        """Leave so many canisters: the first message that is void, and whether earlier messages than ours are void too."""
        ordinal = self._marks[to] if to < len(self._marks) else None
        del self._marks[to:]
        self._reply_begin = len(self._marks)
        return ordinal, to < self._count
