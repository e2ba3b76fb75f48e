"""The entries of a job: its conversation and its steps, as numbered lines.

An entry is the line that `agent/conversation.py` writes for a canister, or a step as JSON.

Laws: the results of a turn are read in the order of its calls, whatever order they ended in; a line in another format
is refused, and nothing but JSON is ever decoded.
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
    """What a reply took. It stands in the entry of the reply's last canister, whose own time is the reply's end."""

    began_at: datetime
    usage: dict[str, int] = {}
    cost: float | None = None
    """US dollars, None if it is not known."""


class MeasuredReply(NamedTuple):
    """The last canister of a reply, to be written with what the reply took."""

    canister: Canister
    took: ReplyTook


_CANISTER: Final = '{"role":'
_canisters: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Canister)
_TOOK: Final = '"took":'
_MAX_TOOK: Final = 500
"""Characters at the end of an entry that say what it took, at most."""


class _Measured(msgspec.Struct):
    took: ReplyTook | None = None


_measured = msgspec.json.Decoder(_Measured)
_steps: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Step)


class JobEntry(NamedTuple):
    """One entry: its number from 1, the round it belongs to (0 before the first), and its line."""

    number: int
    round: int
    line: str

    @property
    def took(self) -> ReplyTook | None:
        """What the reply took that ends with this entry, where that was measured."""
        return _measured.decode(self.line).took if _TOOK in self.line[-_MAX_TOOK:] else None

    @property
    def item(self) -> Item:
        """The canister or step. Raises CallerError for a line that is none."""
        return decode_entry(self.line, path=f"entry {self.number}")


def encode_entry(item: Item | MeasuredReply) -> str:
    if isinstance(item, MeasuredReply):
        return f"{encode_json(item.canister).decode()[:-1]},{_TOOK}{encode_json(item.took).decode()}}}"
    return encode_json(item).decode()


def decode_entry(line: str, *, path: str = "") -> Item:
    """The canister or step of a line. Raises CallerError that names `path` where it is none."""
    decoder = _canisters if line.startswith(_CANISTER) else _steps
    try:
        item: Item = decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not an entry of a job: {error}", path=path) from None
    return item


def read_conversation(items: Iterable[Item]) -> list[Canister]:
    """The conversation as it goes on: without what was rolled back, and each turn's results in the order of its calls."""
    canisters: list[Canister] = []
    for item in items:
        if isinstance(item, RolledBack):
            del canisters[item.to :]
        elif isinstance(item, Canister):
            canisters.append(item)
    return order_results(canisters)


def order_results(canisters: Iterable[Canister]) -> list[Canister]:
    """Return the canisters, with neighbouring results in the order of the calls before them."""
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
