"""The entries of a job: its conversation and its steps, as numbered lines.

An entry is the line that `agent/conversation.py` writes for a canister, or a step as JSON.

Laws: the results of a turn are read in the order of its calls, not in the order in which the calls ended. A line in
another format is refused. Only JSON is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from callboard.coding.job import Step
from callboard.core import Canister, InvocationCanister, ResultCanister, RolledBack
from callboard.errors import CallerError
from callboard.text.surrogates import encode_json

Item: TypeAlias = Canister | Step


class ReplyTook(msgspec.Struct, frozen=True, omit_defaults=True):
    """Start, tokens and cost of a reply. It is part of the reply's last entry, whose timestamp is the reply's end."""

    began_at: datetime
    usage: dict[str, int] = {}
    cost: float | None = None
    """Cost in US dollars, None if it is not known."""


class MeasuredReply(NamedTuple):
    """The last canister of a reply, with the reply's measurements."""

    canister: Canister
    took: ReplyTook


_CANISTER: Final = '{"role":'
_canisters: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Canister)
_TOOK: Final = '"took":'
_MAX_TOOK: Final = 500
"""Maximum characters of the measurements at the end of an entry."""


class _Measured(msgspec.Struct):
    took: ReplyTook | None = None


_measured = msgspec.json.Decoder(_Measured)
_steps: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Step)


class JobEntry(NamedTuple):
    """One entry: its number from 1, its round (0 before the first round), and its line."""

    number: int
    round: int
    line: str

    @property
    def took(self) -> ReplyTook | None:
        """Measurements of the reply that ends with this entry, None if there are none."""
        return _measured.decode(self.line).took if _TOOK in self.line[-_MAX_TOOK:] else None

    @property
    def item(self) -> Item:
        """The canister or step. Raises CallerError if the line is not an entry."""
        return decode_entry(self.line, path=f"entry {self.number}")


def encode_entry(item: Item | MeasuredReply) -> str:
    if isinstance(item, MeasuredReply):
        return f"{encode_json(item.canister).decode()[:-1]},{_TOOK}{encode_json(item.took).decode()}}}"
    return encode_json(item).decode()


def decode_entry(line: str, *, path: str = "") -> Item:
    """Return the canister or step of a line. Raises CallerError with `path` if the line is not an entry."""
    decoder = _canisters if line.startswith(_CANISTER) else _steps
    try:
        item: Item = decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not an entry of a job: {error}", path=path) from None
    return item


def read_conversation(items: Iterable[Item]) -> list[Canister]:
    """Return the conversation without rolled-back canisters, and with each turn's results in the order of its calls."""
    canisters: list[Canister] = []
    for item in items:
        if isinstance(item, RolledBack):
            del canisters[item.to :]
        elif isinstance(item, Canister):
            canisters.append(item)
    return order_results(canisters)


def order_results(canisters: Iterable[Canister]) -> list[Canister]:
    """Return the canisters, with consecutive results in the order of their calls."""
    places: dict[str, int] = {}
    ordered: list[Canister] = []
    for are_results, group in groupby(canisters, lambda each: isinstance(each, ResultCanister)):
        some = list(group)
        if are_results:
            some.sort(key=lambda each: places.get(each.invocation_id, -1))  # type: ignore[union-attr]
        for at, canister in enumerate(some, len(ordered)):
            if isinstance(canister, InvocationCanister):
                places[canister.identifier] = at
        ordered += some
    return ordered
