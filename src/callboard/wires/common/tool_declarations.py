"""The tools of a request as they are declared to a provider: names that it accepts, and schemas that it takes.

Laws: a tool's safe name follows from the declared tools alone, so that it stays the same in a conversation. The same
schema has the same form. Small schemas are cached, because a conversation sends its tools with every request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec.structs import replace

from callboard.core import CUSTOM_SCHEMA, Canister, InvocationCanister, NamedTool, Request, ToolDeclaration

if TYPE_CHECKING:
    from callboard.schema.provider_limits import Fitted

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_NO_LETTERS = frozenset("-0123456789")
NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
"""The schema of a tool without arguments."""
_STRICT = {"chat": "OPENAI", "responses": "OPENAI", "messages": "ANTHROPIC"}
"""The provider whose strict mode a wire has."""
_MOST = 8 * 1024
"""Bytes of a schema whose forms are cached."""
_MAX_CACHED = 512
NAMESPACE_TEXT = "description of the namespace "
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ToolNames:
    """The names of one request's tools: `on_wire` of each declared name, `reverse` where the two differ."""

    safe: ClassVar = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    longest: ClassVar = 64

    def __init__(self, request: Request) -> None:
        self._wire: dict[str, str] = {}
        self._used: set[str] = set()
        tools = [tool.name for tool in request.tools]
        self._add(name for name in tools if self.safe.fullmatch(name))
        self._add(tools)
        if isinstance(request.tool_choice, NamedTool):
            self._add([request.tool_choice.name])
        self._add(called_names(request.canisters))

    def on_wire(self, name: str) -> str:
        return self._wire[name]

    @property
    def reverse(self) -> dict[str, str]:
        return {wire: name for name, wire in self._wire.items() if wire != name}

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._wire:
                self._wire[name] = wire = self._unused_name(name)
                self._used.add(wire)

    def _safe_name(self, name: str) -> str:
        return _UNSAFE.sub("_", name)

    def _unused_name(self, name: str) -> str:
        safe = self._safe_name(name)
        wire, salt = safe, 0
        while wire in self._used or not 0 < len(wire) <= self.longest:
            digest = hashlib.sha256(f"{name}\0{salt}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
            wire = f"{safe[: self.longest - 9]}_{digest}"
            salt += 1
        return wire


class LongToolNames(ToolNames):
    """Names of up to 128 characters, as Anthropic's API takes them."""

    safe: ClassVar = re.compile(r"[a-zA-Z0-9_-]{1,128}")
    longest: ClassVar = 128


class LetteredToolNames(ToolNames):
    """Names that begin with a letter or `_`, as Gemini's do."""

    safe: ClassVar = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")

    def _safe_name(self, name: str) -> str:
        spelled = super()._safe_name(name)
        return f"_{spelled}" if spelled[:1] in _NO_LETTERS else spelled


def called_names(canisters: Iterable[Canister]) -> Iterable[str]:
    return (canister.name for canister in canisters if isinstance(canister, InvocationCanister))


def dropped_descriptions(namespaces: Iterable[str]) -> list[str]:
    """The names of descriptions that are lost because tools go by their whole names."""
    return [f"{NAMESPACE_TEXT}{name}" for name in namespaces]


def dedupe_tools(tools: Iterable[ToolDeclaration]) -> tuple[tuple[ToolDeclaration, ...], tuple[str, ...]]:
    """The first tool of each name, for providers refuse two, and the names of those whose definitions differ."""
    first: dict[str, ToolDeclaration] = {}
    others = [tool for tool in tools if first.setdefault(tool.name, tool) != tool]
    return tuple(first.values()), tuple([duplicate_name(tool.name) for tool in others])


def duplicate_name(name: str) -> str:
    """The name of a definition that is dropped."""
    return f"second definition of the tool {name}"


class StrictTools:
    """The schemas of one request's tools, written for a wire of `schema.provider_limits.RULES`.

    `dropped` names what tools lose; `nullable` and `respelled` are as of EncodedRequest.
    """

    def __init__(self, wire: str) -> None:
        self.dropped: list[str] = []
        self.nullable: dict[str, Mapping[str, Any]] = {}
        self.respelled: dict[str, Fitted] = {}
        self._wire = wire

    def fit(self, tool: ToolDeclaration) -> ToolDeclaration:
        """The tool with the schema that the provider accepts: strict if the tool asks for it and there is a strict form."""
        if tool.kind == "custom":  # this schema is strict, and fits
            return replace(tool, schema=dict(CUSTOM_SCHEMA))
        if not tool.schema:
            tool = replace(tool, schema=NO_SCHEMA)
        if tool.strict and self._wire in _STRICT:
            tool = self._strict(tool)
        form = _cache_small(_fit_schema, tool.schema, self._wire)
        if form is None:
            return tool
        self.dropped += [f"{keyword} at the root of the parameters of {tool.name}" for keyword in form.dropped]
        if form.names:
            self.respelled[tool.name] = form
        return replace(tool, schema=form.schema)

    def _strict(self, tool: ToolDeclaration) -> ToolDeclaration:
        schema = tool.schema
        form = _cache_small(_strict_form, schema, self._wire)
        if form is None:
            self.dropped.append(f"strict of the tool {tool.name}")
            return replace(tool, strict=False)
        if form == schema:
            return tool
        self.dropped += [
            f"{keyword} in the strict parameters of {tool.name}"
            for keyword in _cache_small(_lost_bounds, schema, self._wire)
        ]
        if _STRICT[self._wire] == "OPENAI":
            self.nullable[tool.name] = schema
        return replace(tool, schema=form)


def _cache_small(make: Any, schema: Mapping[str, Any], wire: str) -> Any:
    """make(schema, wire), cached for small schemas."""
    try:
        json = _encode(schema)
        if len(json) <= _MOST:
            return _cached_by_json(make, json, wire)
    except (TypeError, ValueError, RecursionError):  # the body cannot be written either
        pass
    return make(schema, wire)


@lru_cache(_MAX_CACHED)
def _cached_by_json(make: Any, json: bytes, wire: str) -> Any:
    return make(_decode(json), wire)


def _strict_form(schema: Mapping[str, Any], wire: str) -> Mapping[str, Any] | None:
    """The strict form; None where there is none."""
    from callboard.schema import strict  # noqa: PLC0415 - few ask for it

    try:
        return strict.strict_arguments(schema, getattr(strict, _STRICT[wire]))
    except strict.NotStrict:
        return None


def _lost_bounds(schema: Mapping[str, Any], wire: str) -> list[str]:
    """Bounds that the strict form lacks: the arguments are checked for them when they come."""
    from callboard.schema.strict import lost_bounds  # noqa: PLC0415 - few ask for it

    return lost_bounds(schema, _strict_form(schema, wire) or {})


def _fit_schema(schema: Mapping[str, Any], wire: str) -> Fitted | None:
    """The form that the wire's providers accept; None where that is the schema itself."""
    from callboard.schema.provider_limits import RULES, fit_schema  # noqa: PLC0415 - not before tools are declared

    form = fit_schema(schema, RULES[wire])
    return None if form.schema is schema else form
