"""Pass a backend's reply on as its bytes, if nothing on the way would change it.

The request always goes the long way. The decoder of the wire still finds the usage, the end and a failure in the reply,
but the later stages and the client's encoder are skipped. So clients also get fields that decoding loses, such as
annotations. The reply's identifier and the model's name become the gateway's.

The conditions are in `may_pass`, in `HttpModel.changes_reply`, and in `PassThrough` for the first token. Tools are
allowed only if the profile watches for no calls in text, so no reply loses the repairs that its profile asks for.

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


class _Format(msgspec.Struct, frozen=True):
    """How a wire's own servers write a reply."""

    end: bytes
    """The last frame of a stream."""
    reason: re.Pattern[str]
    """Finds the reason for the end. Without a reason, the gateway writes the end."""
    odd: re.Pattern[str] = re.compile("(?!)")
    """Finds fields that the long way renames."""
    has_names: bool = True
    """True if each frame has the name of its event."""


_FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "chat": _Format(
            b"data: [DONE]\n\n",
            re.compile(r'"finish_reason": ?"'),
            re.compile(r'"(?:reasoning|function_call)": ?["{]'),
            has_names=False,
        ),
        "messages": _Format(
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n', re.compile(r'"stop_reason": ?"')
        ),
    }
)


class ClientView(msgspec.Struct, frozen=True):
    """The identifier, and the client's name for the model, in a passed reply."""

    identifier: str
    model: str
    has_usage: bool = True
    """True if the client wants the frame of a stream that has only the usage."""

    def names(self, reply: core.ReplyStarted) -> list[tuple[bytes, bytes]]:
        """Return the bytes to replace in the reply, with their replacements."""
        pairs = [("id", reply.identifier, self.identifier), ("model", reply.model, self.model)]
        quote = msgspec.json.encode
        keys = [(f'"{name}":{space}'.encode(), old, new) for name, old, new in pairs if old for space in ("", " ")]
        return [(key + quote(old), key + quote(new)) for key, old, new in keys]


def may_pass(
    request: ReplyRequest, decoded: core.Request, candidates: Candidates, settings: GatewaySettings, *, has_budget: bool
) -> bool:
    """Return whether the gateway leaves a reply as the backend writes it."""
    return (
        request.front.name in _FORMATS
        and candidates[0][0].settings.wire == request.front.name
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
        self._started: core.ReplyStarted | None = None
        self._names: Sequence[tuple[bytes, bytes]] = ()
        self._size = 0
        self._tail = b""
        """The beginning of a frame."""
        self._is_odd = False
        """True if frames are separated in another way than ours, or are very long."""
        self._pattern: _FramePattern | None = None
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
        return self._read(self._frames.feed(self._pass_pieces(chunk)))

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Return the end of the reply."""
        events = self._read_rest(why) if self._stages is None else []
        if self._stages is not None:
            return events + self._stages.finish(why)
        return events + self._take(self._decoder.finish(why))

    def whole(self, data: bytes) -> list[core.Event]:
        """Return the events of a reply that came whole, or none if it must take the long way."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return []
        events = self._wire.decode_response(text, self._context)
        started = events[0]
        if (
            not isinstance(started, core.ReplyStarted)
            or not isinstance(events[-1], core.ReplyEnded)
            or not self._allowed.issuperset(map(type, events))
            or any(isinstance(each, core.InvocationEnded) and each.arguments is None for each in events)
            or self._format.odd.search(text)
            or not self._format.reason.search(text)
        ):
            return []
        for old, new in self._view.names(started):
            data = data.replace(old, new)
        return [PassedReply(self._wire.name, data=data, is_complete=True), *events]

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
                self._data.append(passed)
            else:
                count = 0
        rest = b"".join([frame + _GAP for frame in frames[count:]])
        return rest + tail if self._is_odd else rest

    def _read_rest(self, why: core.Why) -> list[core.Event]:
        events = self._read([*self._frames.feed(self._tail), *self._frames.finish(why)])
        return self._decline() if self._held is not None and why == "stop" else events

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
        if self._held is None:
            return self._take(events)
        self._early += events
        return [] if sum(map(len, self._held)) <= _MAX_HELD else self._decline()

    def _begin(self, frame: Frame, output: list[core.Event]) -> bool:
        """Return whether this frame may be passed. The first token decides about the rest."""
        if (self._format.has_names and not frame.event) or self._format.odd.search(frame.data):
            return False
        if self._started is None:
            self._started = next((each for each in output if isinstance(each, core.ReplyStarted)), None)
        if _BEFORE_TOKENS.issuperset(map(type, output)):
            return True
        is_allowed = self._allowed.issuperset(map(type, output)) and not isinstance(output[-1], core.ReplyEnded)
        if self._started is None or not is_allowed:
            return False
        self._names = self._view.names(self._started)
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
        self._data.append(data)
        if len(output) == 1 and type(output[0]) in _PIECES and not self._has_tools:
            self._pattern = _FramePattern(data)

    def _take(self, events: list[core.Event]) -> list[core.Event]:
        """Return the data and the events since the last call."""
        events, self._early = [*self._early, *events], []
        is_complete = bool(events) and isinstance(events[-1], core.ReplyEnded) and self._has_reason
        if is_complete:
            self._data.append(self._format.end)
        data, self._data = b"".join(self._data), []
        for old, new in self._names:
            data = data.replace(old, new)
        return [PassedReply(self._wire.name, data=data, is_complete=is_complete), *events] if data else events
