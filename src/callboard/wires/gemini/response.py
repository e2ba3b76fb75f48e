"""A whole reply, not streamed.

Owns the body of a reply in both directions. Knows nothing of HTTP.
Law: it says what the stream of the same reply says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import Event, Identify, ReplyEnded, ReplyFailed, Request
from callboard.wires.chat.errors import EXCERPT
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.gemini.decode_stream import StreamDecoder
from callboard.wires.gemini.encode_stream import Parts, ending
from callboard.wires.gemini.errors import encode_error
from callboard.wires.gemini.finish_reasons import usage_body
from callboard.wires.gemini.schema import Said


def decode_response(
    body: bytes | str | Mapping[str, Any] | list[Any],
    *,
    names: Mapping[str, str] = NO_NAMES,
    identify: Identify,
    declared: frozenset[str] | None = None,
    origin: str = "",
) -> list[Event]:
    """The events of a reply that came whole, as JSON or decoded; parameters as of StreamDecoder.

    A list of chunks, which a stream without `alt=sse` is, is read as the stream. The last event is a ReplyEnded
    or ReplyFailed, whatever the body is.
    """
    decoder = StreamDecoder(names=names, identify=identify, declared=declared, origin=origin)
    if isinstance(body, Mapping | list):
        try:
            said: Said = msgspec.convert(body, Said)
        except (msgspec.MsgspecError, RecursionError) as error:
            message = f"the reply is not of this wire: {error}"
            return [ReplyFailed("provider", "malformed", message, repr(body)[:EXCERPT])]
        events = decoder.take(said)
    else:
        events = decoder.feed(body if isinstance(body, str) else body.decode("utf-8", "replace"))
    return events + decoder.finish_whole()


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,  # noqa: ARG001 - every wire's signature; this one has no place for it
    request: Request | None = None,  # noqa: ARG001 - as above: nothing of it is echoed
) -> dict[str, Any]:
    """The body of a reply; that of a failed one is `{"error": …}`.

    What came before a ReplyEnded("retry") is left out: another reply stands in its place.
    """
    parts, said = Parts(model), _Joined()
    terminal: ReplyEnded | ReplyFailed = ReplyFailed("provider", "cut", "the reply has no end")
    for event in events:
        match event:
            case ReplyEnded(reason="retry"):
                parts, said = Parts(model), _Joined()
            case ReplyEnded() | ReplyFailed():
                terminal = event
                break
            case _:
                said.add(parts.of(event))
    if isinstance(terminal, ReplyFailed):
        return encode_error(terminal)[1]
    said.add(parts.rest())
    content = {"parts": said.parts() or [{"text": ""}], "role": "model"}
    body: dict[str, Any] = {"candidates": [{"content": content, **ending(terminal, parts)}]}
    if parts.usage is not None:
        body["usageMetadata"] = usage_body(parts.usage)
    return body | {"modelVersion": model, "responseId": identifier}


class _Joined:
    """Parts, with neighbouring texts and thoughts joined up to the one that is signed."""

    def __init__(self) -> None:
        self._parts: list[tuple[dict[str, Any], list[str]]] = []

    def add(self, parts: Iterable[dict[str, Any]]) -> None:
        for part in parts:
            last = self._parts[-1][0] if self._parts else {}
            thought = part.get("thought")
            joins = (
                "text" in part and "text" in last and thought == last.get("thought") and "thoughtSignature" not in last
            )
            if joins and (thought or "thoughtSignature" not in part):
                last |= part
                self._parts[-1][1].append(part["text"])
            else:
                self._parts.append((part, [part.get("text", "")]))

    def parts(self) -> list[dict[str, Any]]:
        return [part | {"text": "".join(texts)} if "text" in part else part for part, texts in self._parts]
