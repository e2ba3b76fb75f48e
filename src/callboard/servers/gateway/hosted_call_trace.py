"""Show calls that ran in the gateway as reasoning, and read them back.

A seal beside the reasoning holds the calls and their results. When a client sends the reply back, they stand in the
conversation again.

Law: what was sealed comes back as it was, or not at all.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    InvocationCanister,
    ReasoningContent,
    ResultCanister,
    TextualContent,
)

_MARK = "callboard.hosted.1."
_encode = msgspec.json.Encoder().encode


class _Sealed(msgspec.Struct, frozen=True, omit_defaults=True):
    """With `joined`, calls of the client's tools from the same reply follow."""

    calls: tuple[InvocationCanister, ...]
    results: tuple[ResultCanister, ...]
    joined: bool = False


_decode = msgspec.json.Decoder(_Sealed).decode


def format_call(call: InvocationCanister) -> str:
    """Such as `add({"a":1})`."""
    arguments = call.raw if call.arguments is None else _encode(dict(call.arguments)).decode()
    return f"{call.name}({arguments})"


def format_result(result: ResultCanister) -> str:
    """What follows a call, such as ` -> 2`, to the end of its line."""
    texts = [
        part.text if isinstance(part, TextualContent) else f"[{part.__struct_config__.tag}]" for part in result.content
    ]
    return f" -> {''.join(texts)}\n"


def seal(calls: Sequence[InvocationCanister], results: Sequence[ResultCanister], *, joined: bool) -> str:
    """The calls and their results, in the same order, as the opaque form of the reasoning that shows them."""
    sealed = _Sealed(
        tuple([replace(each, timestamp=None) for each in calls]),
        tuple([replace(each, timestamp=None) for each in results]),
        joined,
    )
    return _MARK + base64.urlsafe_b64encode(_encode(sealed)).decode()


def restore_calls(canisters: Sequence[Canister]) -> Sequence[Canister]:
    """The conversation with the sealed calls and results in place of the reasoning that showed them."""
    if not any(_has_seal(each) for each in canisters):
        return canisters
    restored: list[Canister] = []
    waiting: tuple[ResultCanister, ...] = ()
    for canister in canisters:
        if not isinstance(canister, InvocationCanister):
            restored += waiting
            waiting = ()
        if not (isinstance(canister, AssistantCanister) and _has_seal(canister)):
            restored.append(canister)
            continue
        content: list[Content] = []
        for part in canister.content:
            sealed = _open_seal(part.opaque) if isinstance(part, ReasoningContent) else None
            if sealed is None or not isinstance(part, ReasoningContent):
                content.append(part)
                continue
            if thought := part.text.removesuffix(_format_sealed(sealed)).rstrip("\n"):
                content.append(replace(part, text=thought, opaque=""))
            restored += [*_as_canister(canister, content), *waiting, *sealed.calls]
            content, waiting = [], ()
            if sealed.joined:
                waiting = sealed.results
            else:
                restored += sealed.results
        restored += _as_canister(canister, content)
    return [*restored, *waiting]


def _has_seal(canister: Canister) -> bool:
    return isinstance(canister, AssistantCanister) and any(
        isinstance(part, ReasoningContent) and part.opaque.startswith(_MARK) for part in canister.content
    )


def _as_canister(canister: AssistantCanister, content: Sequence[Content]) -> list[AssistantCanister]:
    return [replace(canister, content=tuple(content))] if content else []


def _open_seal(opaque: str) -> _Sealed | None:
    """What is sealed; None for what is none of ours."""
    if not opaque.startswith(_MARK):
        return None
    try:
        return _decode(base64.b64decode(opaque.removeprefix(_MARK), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _format_sealed(sealed: _Sealed) -> str:
    results = {each.invocation_id: each for each in sealed.results}
    return "".join(
        [
            format_call(each) + (format_result(results[each.identifier]) if each.identifier in results else "")
            for each in sealed.calls
        ]
    )
