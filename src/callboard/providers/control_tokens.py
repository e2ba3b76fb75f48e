"""Escape the control tokens of the model's family in a request, and undo that in the reply.

Requests are escaped before modes render their own markers into them, so that those stay.
Laws: a request without such tokens is the same object; a canister is read once while its conversation is kept; what a
model writes reads as if nothing had been escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Canister,
    Content,
    DocumentCanister,
    Event,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    NamedTool,
    Note,
    ReasoningContent,
    ReasoningPiece,
    RefusalContent,
    RefusalPiece,
    ReplyExtra,
    ReplyStarted,
    Request,
    ResultCanister,
    TextPiece,
    TextualContent,
    ToolDeclaration,
    Usage,
    Why,
)
from callboard.text.control_tokens import ControlTokens, Unescaper, map_texts

_MAX_CONVERSATIONS: Final = 16
_FOREIGN: Final = (ResultCanister, DocumentCanister)
"""What neither the user nor the model wrote: no markup in it is meant."""
_BESIDE: Final = (ReplyStarted, Usage, Note, Logprobs, ReplyExtra)
_Speech: TypeAlias = TextPiece | RefusalPiece | ReasoningPiece
_Call: TypeAlias = InvocationEnded | InvocationIncomplete


class Escaper:
    """Escapes the requests of conversations; with `keeps`, what was escaped once is kept for the next request."""

    def __init__(self, tokens: ControlTokens, *, keeps: bool) -> None:
        self.tokens = tokens
        self._keeps = keeps
        self._known: dict[int, tuple[tuple[Canister, ...], tuple[Canister, ...]]] = {}
        """The last conversations and what became of them, by the identity of their first canisters."""
        self._tools: tuple[Any, Any] = ((), ())

    def escape(self, request: Request) -> Request:
        """The request without control tokens; the same object where it has none."""
        changes: dict[str, Any] = {}
        if (canisters := self._canisters(request.canisters)) is not request.canisters:
            changes["canisters"] = canisters
        if (tools := self._escape_declaration(request.tools)) is not request.tools:
            changes["tools"] = tools
        if (namespaces := map_texts(request.namespaces, self._foreign)) is not request.namespaces:
            changes["namespaces"] = namespaces
        if isinstance(choice := request.tool_choice, NamedTool):
            changes["tool_choice"] = NamedTool(self._foreign(choice.name))
        return replace(request, **changes) if changes else request

    def _canisters(self, canisters: Sequence[Canister]) -> Sequence[Canister]:
        if not canisters:
            return canisters
        before, known = self._known.pop(id(canisters[0]), ((), ())) if self._keeps else ((), ())
        if len(before) > len(canisters) or not all(map(is_, before, canisters)):
            before, known = (), ()
        escaped = (*known, *[self._canister(each) for each in canisters[len(before) :]])
        if self._keeps:
            self._known[id(canisters[0])] = (tuple(canisters), escaped)
            while len(self._known) > _MAX_CONVERSATIONS:
                del self._known[next(iter(self._known))]
        return canisters if all(map(is_, escaped, canisters)) else escaped

    def _canister(self, canister: Canister) -> Canister:
        if isinstance(canister, InvocationCanister):
            return self._call(canister)
        changes: dict[str, Any] = {}
        everything = isinstance(canister, _FOREIGN)
        if (content := self._content(canister.content, everything=everything)) is not canister.content:
            changes["content"] = content
        if isinstance(canister, DocumentCanister):
            changes["title"] = self._foreign(canister.title)
        if isinstance(canister, ResultCanister) and (error := canister.error) is not None:
            changes["error"] = replace(error, message=self._foreign(error.message))
        same = all(getattr(canister, name) == value for name, value in changes.items())
        return canister if same else replace(canister, **changes)

    def _content(self, content: tuple[Content, ...], *, everything: bool) -> tuple[Content, ...]:
        places = [place for place, part in enumerate(content) if _is_text(part)]
        texts = [str(getattr(content[place], "text", "")) for place in places]
        escaped = self.tokens.escape_all(texts, everything=everything)
        if escaped == texts:
            return content
        changed = [*content]
        for place, text in zip(places, escaped, strict=True):
            changed[place] = replace(content[place], text=text)
        return tuple(changed)

    def _call(self, call: InvocationCanister) -> InvocationCanister:
        """Its name is of a tool, its arguments are the model's own."""
        name = self._foreign(call.name)
        raw = self.tokens.escape(call.raw, everything=False, in_json=True)
        arguments = map_texts(call.arguments, self._own)
        if (name, raw) == (call.name, call.raw) and arguments is call.arguments:
            return call
        return replace(call, name=name, raw=raw, arguments=arguments)

    def _escape_declaration(self, tools: tuple[ToolDeclaration, ...]) -> tuple[ToolDeclaration, ...]:
        if tools is not self._tools[0]:
            escaped = tuple([self._tool(tool) for tool in tools])
            self._tools = (tools, tools if all(map(is_, escaped, tools)) else escaped)
        known: tuple[ToolDeclaration, ...] = self._tools[1]
        return known

    def _tool(self, tool: ToolDeclaration) -> ToolDeclaration:
        changed = {
            field: value
            for field in ("name", "description", "schema", "namespace", "extra")
            if (value := map_texts(getattr(tool, field), self._foreign)) is not getattr(tool, field)
        }
        return replace(tool, **changed) if changed else tool

    def _foreign(self, text: str) -> str:
        escaped = self.tokens.escape(text)
        return text if escaped == text else escaped

    def _own(self, text: str) -> str:
        escaped = self.tokens.escape(text, everything=False)
        return text if escaped == text else escaped


class EventUnescaper:
    """A Stage: events of a reply in, the same out as if nothing had been escaped. `json_text` says that text is JSON."""

    def __init__(self, tokens: ControlTokens, *, json_text: bool = False) -> None:
        self._tokens = tokens
        self._json_text = json_text
        self._speech: tuple[_Speech, Unescaper] | None = None
        """The last piece of what is said, and what reads it."""
        self._arguments: dict[int, Unescaper] = {}

    def feed(self, event: Event, /) -> list[Event]:
        if isinstance(event, _BESIDE):
            return [event]
        if isinstance(event, (TextPiece, RefusalPiece)) or (isinstance(event, ReasoningPiece) and not event.opaque):
            return self._unescape_piece(event)
        if isinstance(event, ArgumentsPiece):
            unescaper = self._arguments.get(event.index)
            if unescaper is None:
                unescaper = self._arguments[event.index] = Unescaper(self._tokens, in_json=True)
            return [*self.finish(), *_piece(event, event.json, unescaper.feed(event.json), "json")]
        rest = self.finish()
        match event:
            case InvocationStarted(name=name):
                return [*rest, replace(event, name=self._undo(name))]
            case InvocationEnded() | InvocationIncomplete():
                return [*rest, *self._end_call(event)]
            case _:
                return [*rest, event]

    def finish(self, why: Why = "stop", /) -> list[Event]:
        if self._speech is None:
            return []
        piece, unescaper = self._speech
        self._speech = None
        rest = unescaper.finish()
        return [replace(piece, text=rest, offsets=None)] if rest else []

    def _unescape_piece(self, event: _Speech) -> list[Event]:
        before: list[Event] = []
        if self._speech is None or type(self._speech[0]) is not type(event):
            before = self.finish()
            in_json = self._json_text and isinstance(event, TextPiece)
            self._speech = (event, Unescaper(self._tokens, in_json=in_json))
        return [*before, *_piece(event, event.text, self._speech[1].feed(event.text), "text")]

    def _end_call(self, call: _Call) -> list[Event]:
        unescaper = self._arguments.pop(call.index, None)
        rest = "" if unescaper is None else unescaper.finish()
        pieces: list[Event] = [ArgumentsPiece(call.index, rest)] if rest else []
        changes: dict[str, Any] = {"name": self._undo(call.name), "raw": self._undo(call.raw, in_json=True)}
        if isinstance(call, InvocationEnded):
            changes["arguments"] = map_texts(call.arguments, self._undo)
        same = all(getattr(call, field) == value for field, value in changes.items())
        return [*pieces, call if same else replace(call, **changes)]

    def _undo(self, text: str, *, in_json: bool = False) -> str:
        plain = self._tokens.unescape(text, in_json=in_json)
        return text if plain == text else plain


def _is_text(part: Content) -> bool:
    """Reasoning with the provider's own form of it is signed."""
    return isinstance(part, (TextualContent, RefusalContent)) or (
        isinstance(part, ReasoningContent) and not part.opaque
    )


def _piece(event: _Speech | ArgumentsPiece, text: str, plain: str, field: str) -> list[Event]:
    """The event with other text; none where all of it is held."""
    if plain == text:
        return [event]
    return [replace(event, offsets=None, **{field: plain})] if plain else []
