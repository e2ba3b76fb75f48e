"""Pass a backend's reply on as its bytes, if nothing on the way would change it.

The request always goes the long way. The decoder of the wire still finds the usage, the end and a failure in the reply,
but the later stages and the client's encoder are skipped. So clients also get fields that decoding loses, such as
annotations. The reply's identifier and the model's name become the gateway's.

`may_pass` and `HttpModel.changes_reply` decide whether a reply may be passed. From the first frame that clients may
not know, the events are encoded as usual. On Chat Completions, that is the first call: some servers send calls
without identifiers, or all calls at index 0, and the decoder repairs them. Calls of Messages are passed.

Laws: nothing is sent before the first token, so a failure before it has its status. Frames arrive as the gateway writes
its own, without comments or other fields. The client's bytes do not depend on how the backend's bytes were split.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from callboard import core
from callboard.errors import ProviderError
from callboard.providers.http_exchange import PassedReply
from callboard.text.sse import Frame, SSEDecoder, encode_frame
from callboard.text.surrogates import join_halves
from callboard.wires import Wire
from callboard.wires.common.reply_stream import DecodeContext, string

if TYPE_CHECKING:
    from callboard.servers.gateway.dispatch import Candidates
    from callboard.servers.gateway.exchange import ReplyRequest
    from callboard.servers.gateway.settings import GatewaySettings

MAX_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of a passed stream. A frame of a few characters of text has about 200 bytes."""
_MAX_TAIL: Final = 16 * 1024
"""Maximum bytes of an unfinished frame that is looked at again with the next bytes."""
_GAP: Final = b"\n\n"
_TEXT_KEY: Final = re.compile(rb'"(?:content|text|thinking|reasoning_content|obfuscation)": ?(?=")')
_STRING: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))*+"')
"""A JSON string without surrogates, whose other half may be in another frame."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NO_CHOICES: Final = re.compile(r'"choices":\s*\[\s*\]')
_COUNTS: Final = re.compile(r'"usage":\s*\{')
_NEVER: Final = re.compile("(?!)")
_ODD_CHAT: Final = (
    r'"(?:reasoning|function_call)":\s*(?:\{|"[^"])|"tool_calls":\s*\[\s*\{'
    r'|"(?:delta|message)":\s*\{[^\[{]*"content":\s*\['
)
_PIECES: Final = frozenset({core.TextPiece, core.ReasoningPiece, core.RefusalPiece, core.Logprobs, core.ReplyExtra})
_BEFORE_TOKENS: Final = frozenset({core.ReplyStarted, core.ReplyExtra, core.Usage})
_ENDS: Final = (core.ReplyEnded, core.ReplyFailed)


class _Format(msgspec.Struct, frozen=True):
    """How a wire's own servers write a reply."""

    end: bytes
    """The last frame of a stream."""
    reason: re.Pattern[str]
    """Finds the reason for the end. Without a reason, the gateway writes the end."""
    odd: re.Pattern[str] = _NEVER
    """Finds fields that the long way renames, text that it joins, and calls that it repairs."""
    odd_frame: re.Pattern[str] = _NEVER
    """Finds these in a frame, and a whole message, which the long way splits."""
    has_names: bool = True
    """True if each frame has the name of its event."""
    ends_with_usage: bool = True
    """True if the end of a stream contains the usage."""


_FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "chat": _Format(
            b"data: [DONE]\n\n",
            re.compile(r'"finish_reason":\s*"[^"]'),
            odd=re.compile(_ODD_CHAT),
            odd_frame=re.compile(_ODD_CHAT + r'|"message":\s*\{'),
            has_names=False,
            ends_with_usage=False,
        ),
        "messages": _Format(
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n', re.compile(r'"stop_reason":\s*"[^"]')
        ),
    }
)


class _Names(msgspec.Struct):
    """The names in a frame or in a reply, as the backend spells them."""

    id: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
    message: _Names | None = None
    type: object = None


_decode_names = msgspec.json.Decoder(_Names).decode


def _read_names(text: str) -> _Names:
    try:
        return _decode_names(text)
    except msgspec.MsgspecError:
        return _Names()


class ClientView(msgspec.Struct, frozen=True):
    """The identifier, and the client's name for the model, in a passed reply."""

    identifier: str
    model: str
    has_usage: bool = True
    """True if the client wants the frame of a stream that has only the usage."""

    def replacements(self, names: _Names) -> list[tuple[bytes, bytes]]:
        """Return the bytes to replace in a frame or in a reply with these names, with their replacements."""
        names = names.message or names
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
    return (
        request.front.name in _FORMATS
        and backend.settings.wire == request.front.name
        # On Messages, the signature of a thought is sealed with the backend's name if the client has another.
        and (request.front.name == "chat" or name == decoded.model)
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
        has_tools: True if the reply may have calls: the reasoning before a call is remembered, so all events of
            reasoning are returned. Without calls, only the first piece of each kind is returned.
    """

    def __init__(self, wire: Wire, context: DecodeContext, view: ClientView, *, has_tools: bool) -> None:
        self._wire, self._context, self._view = wire, context, view
        self._format = _FORMATS[wire.name]
        self._has_tools = has_tools
        self._frames = SSEDecoder()
        self._decoder = wire.stream_decoder(context)
        self._is_passing = True
        """False after the last frame that is passed."""
        self._has_token = False
        """True if a token is in the data, so that the data is sent."""
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
        """Frames that are not sent yet."""
        self._events: list[core.Event] = []
        """The events of these frames."""
        self._seen: set[type[core.Event]] = set()
        self._has_reason = False

    def feed(self, chunk: bytes, /) -> list[core.Event]:
        """Return what follows from the next bytes. Raises ProviderError `too_large`."""
        self._size += len(chunk)
        if self._size > MAX_BYTES:
            raise ProviderError(f"the reply has more than {MAX_BYTES} bytes", code="too_large")
        return self._take(self._read(self._frames.feed(self._pass_pieces(chunk))))

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Return the end of the reply."""
        rest = self._read([*self._frames.feed(self._tail), *self._frames.finish(why)])
        return self._take(rest + self._end(self._decoder.finish(why)))

    def whole(self, data: bytes) -> list[core.Event]:
        """Return the events of a reply that came whole, or none if it must take the long way."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return []
        if self._format.odd.search(text) or not self._format.reason.search(text):
            return []
        events = self._wire.decode_response(text, self._context)
        if (
            not isinstance(events[-1], core.ReplyEnded)
            or any(type(each) in {core.Note, core.InvocationIncomplete} for each in events)
            or any(isinstance(each, core.InvocationEnded) and each.arguments is None for each in events)
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
        if self._pattern is not None:
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
        """Pass what may be passed of these frames. Return the events to encode."""
        rest: list[core.Event] = []
        for frame in frames:
            if not frame.data:
                continue
            output = self._decoder.feed(frame.data)
            if output and isinstance(output[-1], _ENDS):
                rest += self._end(output)
            elif not self._is_passing or self._format.odd_frame.search(frame.data):
                self._is_passing, self._pattern = False, None
                rest += output
            else:
                self._pass(frame, output)
        return rest

    def _pass(self, frame: Frame, output: list[core.Event]) -> None:
        text = frame.data
        self._has_reason = self._has_reason or self._format.reason.search(text) is not None
        self._has_token = self._has_token or not _BEFORE_TOKENS.issuperset(map(type, output))
        self._events += [each for each in output if self._has_tools or type(each) not in self._seen]
        if self._has_token:
            self._seen.update([type(each) for each in output if type(each) in _PIECES])
        self._pattern = None
        if not output and not self._view.has_usage and _NO_CHOICES.search(text) and _COUNTS.search(text):
            return  # the gateway asks each backend for the usage, but the client did not
        if self._half or _SURROGATE.search(text):
            text, half, alone = join_halves(text, self._half)
            self._half = half or alone
        if (names := _read_names(text)) != self._names:
            self._names, self._replacements = names, self._view.replacements(names)
        name = frame.event or string(names.type) if self._format.has_names else ""
        data = encode_frame(text.encode(), name.encode())
        self._data.append(_rename(data, self._replacements))
        is_piece = self._has_token and len(output) == 1 and type(output[0]) in _PIECES
        if is_piece and not (self._has_tools and isinstance(output[0], core.ReasoningPiece)):
            self._pattern = _FramePattern(data)

    def _end(self, output: list[core.Event]) -> list[core.Event]:
        """End the reply with these events. Return the events to encode."""
        if not output or not self._is_passing:
            return output
        self._is_passing, self._pattern = False, None
        if self._has_reason and isinstance(output[-1], core.ReplyEnded):
            self._has_token = True
            self._data.append(self._format.end)
            self._events += output
            return []
        split = len(output) - 1
        if self._format.ends_with_usage:
            split -= isinstance(output[split - 1], core.Usage)
        self._events += output[:split]
        return output[split:]

    def _take(self, rest: list[core.Event]) -> list[core.Event]:
        """Return the data and the events since the last call, and the events to encode."""
        if not self._has_token and not rest:
            return []
        events, self._events = [*self._events, *rest], []
        data, self._data = b"".join(self._data), []
        if not self._has_token or not (data or len(events) > len(rest)):
            return events
        return [PassedReply(self._wire.name, data=data, rest=len(rest)), *events]
