"""Actions that a loop requests from its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from callboard.core import Canister, InvocationCanister, ResultCanister, RunState


class CallModel(msgspec.Struct, frozen=True):
    """Request the reply of round `number` to the `canisters`. `last` asks for an answer without calls."""

    number: int
    canisters: tuple[Canister, ...]
    last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Run the `invocations`, except those that already have a result in `answered`, by identifier."""

    invocations: tuple[InvocationCanister, ...]
    answered: Mapping[str, ResultCanister]


class AskApproval(msgspec.Struct, frozen=True):
    """Ask a person about the call `invocation` because of `why`, and feed the answer as ApprovalAnswered."""

    invocation: InvocationCanister
    why: str


class CheckOutput(msgspec.Struct, frozen=True):
    """Check the `text` of a reply that would end the run, and pass what is wrong with it to `answer_check`."""

    text: str


class HandOver(msgspec.Struct, frozen=True):
    """Switch to the agent of the handoff `name`. Its loop continues with `go_on`."""

    name: str


class Finish(msgspec.Struct, frozen=True):
    """End the run in `state`. `output` is the text of its last reply; `why` says why it did not complete."""

    state: RunState
    output: str
    why: str = ""


Action: TypeAlias = CallModel | Execute | AskApproval | CheckOutput | HandOver | Finish
