"""Escape the control tokens of the model's family in a request, and reverse that in the reply.

Requests are escaped before modes render their own markers into them, so that those stay.
Laws: a request without such tokens is the same object; what a model writes reads as if nothing had been escaped.
"""

from __future__ import annotations

from operator import is_
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.text.control_tokens import ControlTokens, Unescaper, map_texts

_FOREIGN: Final = (core.ResultCanister, core.DocumentCanister)
"""Canisters that neither the user nor the model wrote: all markup in them is escaped."""
_BESIDE: Final = (core.ReplyStarted, core.Usage, core.Note, core.Logprobs, core.ReplyExtra)
_TOOL_FIELDS: Final = ("name", "description", "schema", "namespace", "extra")
_Speech: TypeAlias = core.TextPiece | core.RefusalPiece | core.ReasoningPiece
_Call: TypeAlias = core.InvocationEnded | core.InvocationIncomplete
_T = TypeVar("_T", bound=msgspec.Struct)


def escape_request(request: core.Request, tokens: ControlTokens) -> core.Request:
    """The request without control tokens; the same object if it has none."""
    choice = request.tool_choice
    canisters = [_escape_canister(each, tokens) for each in request.canisters]
    declared = [{field: getattr(each, field) for field in _TOOL_FIELDS} for each in request.tools]
    escaped, namespaces = map_texts((declared, request.namespaces), tokens.escape)
    return _replace_fields(
        request,
        canisters=request.canisters if all(map(is_, canisters, request.canisters)) else tuple(canisters),
        tools=request.tools
        if escaped is declared
        else tuple([_replace_fields(each, **fields) for each, fields in zip(request.tools, escaped, strict=True)]),
        namespaces=namespaces,
        tool_choice=_replace_fields(choice, name=tokens.escape(choice.name))
        if isinstance(choice, core.NamedTool)
        else choice,
    )


def _escape_canister(canister: core.Canister, tokens: ControlTokens) -> core.Canister:
    if isinstance(canister, core.InvocationCanister):
        # Its name is of a tool, its arguments are the model's own.
        arguments = map_texts(canister.arguments, lambda text: tokens.escape(text, everything=False))
        raw = canister.raw
        if arguments is not canister.arguments:
            raw = msgspec.json.encode(arguments).decode()
        elif arguments is None:
            raw = tokens.escape(raw, everything=False)
        return _replace_fields(canister, name=tokens.escape(canister.name), arguments=arguments, raw=raw)
    changes: dict[str, Any] = {}
    places = [place for place, part in enumerate(canister.content) if _is_text(part)]
    texts = [str(getattr(canister.content[place], "text", "")) for place in places]
    escaped = tokens.escape_all(texts, everything=isinstance(canister, _FOREIGN))
    if escaped != texts:
        content = [*canister.content]
        for place, text in zip(places, escaped, strict=True):
            content[place] = replace(content[place], text=text)
        changes["content"] = tuple(content)
    if isinstance(canister, core.DocumentCanister):
        changes["title"] = tokens.escape(canister.title)
    if isinstance(canister, core.ResultCanister) and (error := canister.error) is not None:
        changes["error"] = _replace_fields(error, message=tokens.escape(error.message))
    return _replace_fields(canister, **changes)


class EventUnescaper:
    """A Stage: events of a reply in, the same out as if nothing had been escaped. `json_text` says that text is JSON."""

    def __init__(self, tokens: ControlTokens, *, json_text: bool = False) -> None:
        self._tokens = tokens
        self._json_text = json_text
        self._speech: tuple[_Speech, Unescaper] | None = None
        """The last piece of what is said, and what reads it."""
        self._arguments: dict[int, Unescaper] = {}

    def feed(self, event: core.Event, /) -> list[core.Event]:
        if isinstance(event, (core.TextPiece, core.RefusalPiece)) or (
            isinstance(event, core.ReasoningPiece) and not event.opaque
        ):
            return self._unescape_piece(event)
        if isinstance(event, _BESIDE):
            return [event]
        match event:
            case core.ArgumentsPiece(index=index):
                unescaper = self._arguments.setdefault(index, Unescaper(self._tokens, in_json=True))
                return [*self.finish(), *_piece(event, event.json, unescaper.feed(event.json), "json")]
            case core.InvocationStarted(name=name):
                return [*self.finish(), _replace_fields(event, name=self._tokens.unescape(name))]
            case core.InvocationEnded() | core.InvocationIncomplete():
                return [*self.finish(), *self._end_call(event)]
            case _:
                return [*self.finish(), event]

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        if self._speech is None:
            return []
        piece, unescaper = self._speech
        self._speech = None
        rest = unescaper.finish()
        return [replace(piece, text=rest, offsets=None)] if rest else []

    def _unescape_piece(self, event: _Speech) -> list[core.Event]:
        before: list[core.Event] = []
        if self._speech is None or type(self._speech[0]) is not type(event):
            before = self.finish()
            in_json = self._json_text and isinstance(event, core.TextPiece)
            self._speech = (event, Unescaper(self._tokens, in_json=in_json))
        return [*before, *_piece(event, event.text, self._speech[1].feed(event.text), "text")]

    def _end_call(self, call: _Call) -> list[core.Event]:
        unescaper = self._arguments.pop(call.index, None)
        rest = "" if unescaper is None else unescaper.finish()
        changes = {"name": self._tokens.unescape(call.name), "raw": self._tokens.unescape(call.raw, in_json=True)}
        if isinstance(call, core.InvocationEnded):
            changes["arguments"] = map_texts(call.arguments, self._tokens.unescape)
        return [*([core.ArgumentsPiece(call.index, rest)] if rest else []), _replace_fields(call, **changes)]


def _replace_fields(value: _T, **changes: Any) -> _T:
    """The value with other fields; the same object if none of them is another object or text."""
    for name, changed in changes.items():
        before = getattr(value, name)
        if changed is not before and not (isinstance(changed, str) and changed == before):
            return replace(value, **changes)
    return value


def _is_text(part: core.Content) -> bool:
    """Reasoning with the provider's own form of it is signed."""
    return isinstance(part, (core.TextualContent, core.RefusalContent)) or (
        isinstance(part, core.ReasoningContent) and not part.opaque
    )


def _piece(event: _Speech | core.ArgumentsPiece, text: str, plain: str, field: str) -> list[core.Event]:
    """The event with other text; none if all of it is held."""
    if plain == text:
        return [event]
    return [replace(event, offsets=None, **{field: plain})] if plain else []
