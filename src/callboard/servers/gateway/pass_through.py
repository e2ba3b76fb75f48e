"""Pass a backend's reply on as its bytes, if nothing on the way would change it.

The request always goes the long way. The decoder of the wire still finds the usage, the end and a failure in the reply,
but the later stages and the client's encoder are skipped. So clients also get fields that decoding loses, such as
annotations. The reply's identifier and the model's name become the gateway's.

The conditions are in `may_pass`, in `HttpModel.changes_reply`, and in `PassThrough` for the first token. No reply loses
the repairs that its profile asks for, or that the decoder of Chat Completions makes in calls.

Laws: nothing is sent before the first token has decided, so the long way can read the same bytes again. Frames arrive as
the gateway writes its own, without comments or other fields. The client's bytes do not depend on how the backend's bytes
were split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from callboard import core
from callboard.errors import ProviderError
from callboard.providers.http_exchange import PassedReply
from callboard.text.sse import Frame, SSEDecoder
from callboard.text.surrogates import join_halves
from callboard.wires import Wire
from callboard.wires.common.reply_stream import DecodeContext

if TYPE_CHECKING:
    from callboard.servers.gateway.dispatch import Candidates
    from callboard.servers.gateway.exchange import ReplyRequest
    from callboard.servers.gateway.settings import GatewaySettings

MAX_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of a passed stream. A frame of a few characters of text has about 200 bytes."""
_MAX_HELD: Final = 64 * 1024
"""Maximum bytes of a stream before its first token. A longer beginning takes the long way."""
_MAX_TAIL: Final = 16 * 1024
"""Maximum bytes of an unfinished frame that is looked at again with the next bytes."""
_GAP: Final = b"\n\n"
_TEXT_KEY: Final = re.compile(rb'"(?:content|text|thinking|reasoning_content|obfuscation)": ?(?=")')
_STRING: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))*+"')
"""A JSON string without surrogates, whose other half may be in another frame."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NO_CHOICES: Final = re.compile(r'"choices": ?\[\]')
_COUNTS: Final = re.compile(r'"usage": ?\{')
_BEFORE_TOKENS: Final = frozenset({core.ReplyStarted, core.ReplyExtra, core.Usage})
_PIECES: Final = frozenset({core.TextPiece, core.ReasoningPiece, core.RefusalPiece, core.Logprobs, core.ReplyExtra})
_WITHOUT_CALLS: Final = _PIECES | {core.ReplyStarted, core.Usage, core.ReplyEnded}
_WITH_CALLS: Final = _WITHOUT_CALLS | {core.InvocationStarted, core.ArgumentsPiece, core.InvocationEnded}
_ENDS: Final[frozenset[type]] = frozenset({core.ReplyEnded, core.ReplyFailed})


class _Format(msgspec.Struct, frozen=True):
    """How a wire's own servers write a reply."""

    end: bytes
    """The last frame of a stream."""
    reason: re.Pattern[str]
    """Finds the reason for the end. Without a reason, the gateway writes the end."""
    lacks: frozenset[type] = _ENDS
    """Events that are encoded if the backend does not write the end."""
    odd: re.Pattern[str] = re.compile("(?!)")
    """Finds fields that the long way renames, and text that it joins."""
    has_names: bool = True
    """True if each frame has the name of its event."""


_FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "chat": _Format(
            b"data: [DONE]\n\n",
            re.compile(r'"finish_reason": ?"[^"]'),
            odd=re.compile(r'"(?:reasoning|function_call)": ?["{]|"(?:delta|message)": ?\{[^\[{]*"content": ?\['),
            has_names=False,
        ),
        "messages": _Format(
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
            re.compile(r'"stop_reason": ?"[^"]'),
            lacks=_ENDS | {core.Usage},
        ),
    }
)


class _Names(msgspec.Struct):
    """The names in a frame or in a reply, as the backend spells them."""

    id: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
    message: _Names | None = None


_decode_names = msgspec.json.Decoder(_Names).decode


def _read_names(text: str) -> _Names:
    try:
        names = _decode_names(text)
    except msgspec.MsgspecError:
        return _Names()
    return names.message or names


class ClientView(msgspec.Struct, frozen=True):
    """The identifier, and the client's name for the model, in a passed reply."""

    identifier: str
    model: str
    has_usage: bool = True
    """True if the client wants the frame of a stream that has only the usage."""

    def replacements(self, names: _Names) -> list[tuple[bytes, bytes]]:
        """Return the bytes to replace in a frame or in a reply with these names, with their replacements."""
        pairs = [("id", bytes(names.id), self.identifier), ("model", bytes(names.model), self.model)]
        quoted = [(field, old, msgspec.json.encode(new)) for field, old, new in pairs if re.match(b'"[^"]', old)]
        keys = [(f'"{field}":{space}'.encode(), old, new) for field, old, new in quoted for space in ("", " ")]
        return [(key + old, key + new) for key, old, new in keys]


def _rename(data: bytes, replacements: Sequence[tuple[bytes, bytes]]) -> bytes:
    for old, new in replacements:
        data = data.replace(old, new)
    return data


def may_pass(
    request: ReplyRequest, decoded: core.Request, candidates: Candidates, settings: GatewaySettings, *, has_budget: bool
) -> bool:
    """Return whether the gateway leaves a reply as the backend writes it."""
    backend, name = candidates[0]
    # Some servers of Chat Completions send calls without identifiers, or all calls at index 0: the decoder repairs them.
    # On Messages, the signature of a thought is sealed with the backend's name of the model if the client has another.
    is_plain = not decoded.tools if request.front.name == "chat" else name == decoded.model
    return (
        request.front.name in _FORMATS
        and backend.settings.wire == request.front.name
        and is_plain
        and len(candidates) == 1  # another backend may reply after a failure
        and not decoded.hosted  # the provider's own tools
        and not settings.ensembles  # the gateway's own tools
        and not settings.strict
        and not has_budget  # the cost of an unfinished reply is estimated by its pieces
        and not request.filters
        and request.on_finished is None
        and request.memory is None  # a WebSocket sends payloads, not bytes
    )


class _FramePattern:
    """Matches frames that differ from an earlier one only in the text of a piece.

    Args:
        frame: A frame with the gap after it. Without such a text, nothing matches.
    """

    def __init__(self, frame: bytes) -> None:
        self._starts: list[bytes] = []
        position = 0
        for key in _TEXT_KEY.finditer(frame):
            if text := _STRING.match(frame, key.end()):
                self._starts.append(frame[position : key.end()])
                position = text.end()
        self._end = frame[position:].removesuffix(_GAP)

    def matches(self, frame: bytes) -> bool:
        """Return whether the frame, without the gap after it, has this pattern."""
        position = 0
        for start in self._starts:
            if not frame.startswith(start, position):
                return False
            if (text := _STRING.match(frame, position + len(start))) is None:
                return False
            position = text.end()
        return position > 0 and frame[position:] == self._end


class PassThrough:
    """A Stage from the bytes of a stream to events: PassedReply, and the events that the gateway counts.

    Args:
        wire: The wire of both sides.
        context: The names for the wire's decoder.
        view: The names for the client.
        has_tools: True if the reply may have calls. Without calls, only the first piece of each kind is returned.
        long_way: Makes the stages that decode the reply.
    """

    def __init__(
        self,
        wire: Wire,
        context: DecodeContext,
        view: ClientView,
        *,
        has_tools: bool,
        long_way: Callable[[], core.Stage[bytes, core.Event]],
    ) -> None:
        self._wire, self._context, self._view = wire, context, view
        self._format = _FORMATS[wire.name]
        self._has_tools = has_tools
        self._allowed: frozenset[type] = _WITH_CALLS if has_tools else _WITHOUT_CALLS
        self._long_way = long_way
        self._stages: core.Stage[bytes, core.Event] | None = None
        """The long way, if it was taken."""
        self._frames = SSEDecoder()
        self._decoder = wire.stream_decoder(context)
        self._held: list[bytes] | None = []
        """The bytes before the first token, None after it."""
        self._early: list[core.Event] = []
        """The events before the first token."""
        self._size = 0
        self._tail = b""
        """The beginning of a frame."""
        self._is_odd = False
        """True if frames are separated in another way than ours, or are very long."""
        self._pattern: _FramePattern | None = None
        self._names = _Names()
        """The names in the last decoded frame, and in frames that have the pattern."""
        self._replacements: Sequence[tuple[bytes, bytes]] = ()
        """The bytes to replace in frames with these names."""
        self._half = ""
        """The first half of a character whose second half may come in the next frame."""
        self._data: list[bytes] = []
        self._seen: set[type[core.Event]] = set()
        self._has_reason = False
        self._is_over = False

    def feed(self, chunk: bytes, /) -> list[core.Event]:
        """Return what follows from the next bytes. Raises ProviderError `too_large`."""
        if self._stages is not None:
            return self._stages.feed(chunk)
        self._size += len(chunk)
        if self._size > MAX_BYTES:
            raise ProviderError(f"the reply has more than {MAX_BYTES} bytes", code="too_large")
        if self._held is not None:
            self._held.append(chunk)
        events = self._read(self._frames.feed(self._pass_pieces(chunk)))
        if self._held is None:
            return self._take(events)
        self._early += events
        return [] if self._size <= _MAX_HELD else self._decline()

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Return the end of the reply."""
        events: list[core.Event] = []
        if self._stages is None:
            events = self._read([*self._frames.feed(self._tail), *self._frames.finish(why)])
        if self._held is not None:
            events = self._decline()
        return self._take(events + (self._stages or self._decoder).finish(why))

    def whole(self, data: bytes) -> list[core.Event]:
        """Return the events of a reply that came whole, or none if it must take the long way."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return []
        events = self._wire.decode_response(text, self._context)
        if (
            not isinstance(events[-1], core.ReplyEnded)
            or not self._allowed.issuperset(map(type, events))
            or any(isinstance(each, core.InvocationEnded) and each.arguments is None for each in events)
            or self._format.odd.search(text)
            or not self._format.reason.search(text)
        ):
            return []
        replacements = self._view.replacements(_read_names(text))
        return [PassedReply(self._wire.name, data=_rename(data, replacements)), *events]

    def _pass_pieces(self, chunk: bytes) -> bytes:
        """Pass the frames at the beginning that have the pattern of a piece of text. Return the rest.

        The decoder would take some microseconds for each of them, and find nothing but text.
        """
        if self._is_odd or b"\r" in chunk:
            self._is_odd = True
            chunk, self._tail = self._tail + chunk, b""
            return chunk
        *frames, tail = (self._tail + chunk).split(_GAP)
        self._is_odd = len(tail) > _MAX_TAIL
        self._tail = b"" if self._is_odd else tail
        count = 0
        if self._pattern is not None and not self._is_over:
            while count < len(frames) and self._pattern.matches(frames[count]):
                count += 1
            passed = b"".join([frame + _GAP for frame in frames[:count]])
            if passed.isascii() or "\ufffd" not in passed.decode(errors="replace"):
                self._data.append(_rename(passed, self._replacements))
            else:
                count = 0
        rest = b"".join([frame + _GAP for frame in frames[count:]])
        return rest + tail if self._is_odd else rest

    def _read(self, frames: Sequence[Frame]) -> list[core.Event]:
        events: list[core.Event] = []
        for frame in frames:
            if not frame.data or self._is_over:
                continue
            output = self._decoder.feed(frame.data)
            if self._held is not None and not self._begin(frame, output):
                return self._decline()
            self._has_reason = self._has_reason or self._format.reason.search(frame.data) is not None
            self._is_over = bool(output) and isinstance(output[-1], core.ReplyEnded | core.ReplyFailed)
            if not self._is_over and not self._is_unwanted(frame.data, output):
                self._write(frame, output)
            events += [each for each in output if self._has_tools or type(each) not in self._seen]
            self._seen.update([type(each) for each in output if type(each) in _PIECES])
        return events

    def _begin(self, frame: Frame, output: list[core.Event]) -> bool:
        """Return whether this frame may be passed. The first token decides about the rest."""
        if (self._format.has_names and not frame.event) or self._format.odd.search(frame.data):
            return False
        if _BEFORE_TOKENS.issuperset(map(type, output)):
            return True
        if not self._allowed.issuperset(map(type, output)) or isinstance(output[-1], core.ReplyEnded):
            return False
        self._held = None
        return True

    def _decline(self) -> list[core.Event]:
        self._stages = self._long_way()
        held, self._held = b"".join(self._held or ()), None
        return self._stages.feed(held)

    def _is_unwanted(self, text: str, output: list[core.Event]) -> bool:
        """Return whether the client did not ask for this frame: the gateway asks each backend for the usage."""
        is_usage = not output and not self._view.has_usage and _NO_CHOICES.search(text) and _COUNTS.search(text)
        return bool(is_usage)

    def _write(self, frame: Frame, output: list[core.Event]) -> None:
        text = frame.data
        if self._half or _SURROGATE.search(text):
            text, half, alone = join_halves(text, self._half)
            self._half = half or alone
        name = f"event: {frame.event}\n" if self._format.has_names else ""
        data = f"{name}data: {text}\n\n".encode()
        if (names := _read_names(text)) != self._names:
            self._names, self._replacements = names, self._view.replacements(names)
        self._data.append(_rename(data, self._replacements))
        is_piece = len(output) == 1 and type(output[0]) in _PIECES
        self._pattern = _FramePattern(data) if is_piece and self._held is None and not self._has_tools else None

    def _take(self, events: list[core.Event]) -> list[core.Event]:
        """Return the data and the events since the last call."""
        if self._stages is not None:
            return events
        events, self._early = [*self._early, *events], []
        lacks = self._format.lacks if events and type(events[-1]) in _ENDS else frozenset()
        if lacks and isinstance(events[-1], core.ReplyEnded) and self._has_reason:
            self._data.append(self._format.end)
            lacks = frozenset()
        data, self._data = b"".join(self._data), []
        return [PassedReply(self._wire.name, data=data, lacks=lacks), *events] if data or events else []
