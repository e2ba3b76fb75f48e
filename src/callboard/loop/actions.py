"""What a loop asks its driver to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from callboard.core import Canister, InvocationCanister, ResultCanister, RunState


class CallModel(msgspec.Struct, frozen=True):
    """Ask for round `number`'s reply. `last` says that it is to answer without any call."""

    number: int
    canisters: tuple[Canister, ...]
    last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Run the invocations, but for those whose result is `answered` already, by identifier."""

    invocations: tuple[InvocationCanister, ...]
    answered: Mapping[str, ResultCanister]


class AskApproval(msgspec.Struct, frozen=True):
    """Ask a person; the answer is fed as ApprovalAnswered."""

    invocation: InvocationCanister
    why: str


class CheckOutput(msgspec.Struct, frozen=True):
    """Find out what is wrong with the text of a reply that would end the run, and give that to `answer_check`."""

    text: str


class HandOver(msgspec.Struct, frozen=True):
    """Another agent goes on, the one that the handoff of this `name` is to; its loop is asked what is next."""

    name: str


class Finish(msgspec.Struct, frozen=True):
    """The run is over. `output` is the text of its last reply, `why` says what ended it where it did not complete."""

    state: RunState
    output: str
    why: str = ""


Action: TypeAlias = CallModel | Execute | AskApproval | CheckOutput | HandOver | Finish
