"""Tools and the choice among them, both ways.

Owns what a tool is called on this wire: a namespaced one by its namespace and local name, any other by a safe
name. Knows nothing of items or bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from callboard.core import (
    CUSTOM_SCHEMA,
    HostedTool,
    NamedTool,
    Request,
    ResultCanister,
    ToolChoice,
    ToolDeclaration,
)
from callboard.errors import CallerError
from callboard.wires.common.client_input import extra_for, read_shape, unnamed
from callboard.wires.common.group_turns import Turn, group_turns
from callboard.wires.common.tool_declarations import (
    StrictTools,
    ToolNames,
    called_names,
    dropped_descriptions,
    duplicate_name,
)
from callboard.wires.responses.schema import (
    SEARCH,
    CustomTool,
    FunctionTool,
    NamespaceTool,
    SearchTool,
)

if TYPE_CHECKING:
    from callboard.schema.provider_limits import Fitted

WIRE = "responses"
_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_CUSTOM_SCHEMA: Mapping[str, Any] = dict(CUSTOM_SCHEMA)
NOTHING_FOUND = "No tools found."
"""What a model reads as the result of a tool search that found none."""
_SEARCH_TEXT = "Finds tools by what they do; those that it finds can be called from then on."
_SEARCH_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
}
_MODES: Mapping[Any, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}
_SAFE = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolEncoder:
    """What the tools of one request are called. `names` leads back from a name on the wire to the declared one,
    where the two differ; a namespaced tool's is `namespace__local`. Tools that a search found stand in its output.
    """

    def __init__(self, request: Request, called: Iterable[str] | None = None) -> None:
        self._naming = ToolNames(request, called)
        self._strictness = StrictTools(WIRE)
        self._declared = {tool.name: self._strictness.held(tool) for tool in request.tools}
        self._apart = {name for name, tool in self._declared.items() if _apart(tool)}
        self._namespaces = request.namespaces
        searches = {tool.name for tool in request.tools if tool.kind == "search"}
        self._found = _found(request, searches) - searches

    @property
    def nullable(self) -> Mapping[str, Mapping[str, Any]]:
        """As of EncodedRequest."""
        return self._strictness.nullable

    @property
    def respelled(self) -> Mapping[str, Fitted]:
        """As of EncodedRequest."""
        return self._strictness.respelled

    @property
    def names(self) -> dict[str, str]:
        names = self._naming.reverse
        if SEARCH not in self._declared:
            names.update((SEARCH, tool.name) for tool in self._declared.values() if tool.kind == "search")
        for name in self._apart:
            tool = self._declared[name]
            if name != (wire := f"{tool.namespace}__{tool.local}"):
                names[wire] = name
        return names

    def add(self, names: Iterable[str]) -> None:
        """Names that are called after all others."""
        self._naming.add(names)

    def on_wire(self, name: str) -> Any:
        """All that a call takes from the tools; of a search that is too much, for its output declares some."""
        kind = self.kind(name)
        return object() if kind == "search" else (kind, self.called(name))

    def called(self, name: str) -> dict[str, Any]:
        """The fields that name the tool."""
        if name in self._apart:
            tool = self._declared[name]
            return {"name": tool.local, "namespace": tool.namespace}
        return {"name": self._naming.on_wire(name)}

    def kind(self, name: str) -> Literal["function", "custom", "search"]:
        tool = self._declared.get(name)
        return "function" if tool is None else tool.kind

    def tools(self) -> list[dict[str, Any]]:
        """The declarations; the tools of a namespace stand where its first one stands."""
        return self._list(tool for tool in self._declared.values() if tool.name not in self._found)

    def found(self, result: ResultCanister) -> tuple[list[dict[str, Any]], bool]:
        """The declarations of the tools that a search's result names, and whether it says nothing else."""
        names = [name for name in _named_in(result) if name in self._declared]
        said = result.text in ("\n".join(names), NOTHING_FOUND)
        return self._list(self._declared[name] for name in names), said

    def _list(self, tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        spaces: dict[str, list[dict[str, Any]]] = {}
        for tool in tools:
            if tool.kind == "search":
                listed.append(_search(tool))
                continue
            if tool.name not in self._apart:
                listed.append(_declaration(tool, self._naming.on_wire(tool.name)))
                continue
            space = tool.namespace
            if space not in spaces:
                spaces[space] = []
                text = self._namespaces.get(space) or space  # the API requires one
                listed.append({"type": "namespace", "name": space, "description": text, "tools": spaces[space]})
            spaces[space].append(_declaration(tool, tool.local))
        return listed

    def choice(self, choice: ToolChoice) -> Any:
        if not isinstance(choice, NamedTool):
            return choice
        kind = self.kind(choice.name)
        if kind == "search":
            return {"type": "allowed_tools", "mode": "required", "tools": [{"type": SEARCH}]}
        return {"type": kind, "name": self.called(choice.name)["name"]}

    @property
    def dropped(self) -> list[str]:
        """Descriptions of namespaces whose tools do not go by them, and what tools asked for in vain."""
        apart = {self._declared[name].namespace for name in self._apart}
        return self._strictness.dropped + dropped_descriptions(
            space for space in self._namespaces if space not in apart
        )


def _apart(tool: ToolDeclaration) -> bool:
    """Whether the tool goes by its namespace and local name."""
    return bool(tool.kind != "search" and _SAFE.fullmatch(tool.namespace) and _SAFE.fullmatch(tool.local))


def _found(request: Request, searches: set[str]) -> set[str]:
    """The names that the results of tool searches tell."""
    if not searches or searches.isdisjoint(called_names(request.canisters)):
        return set()
    return {
        name
        for turn in group_turns(request.canisters)
        if isinstance(turn, Turn)
        for call, result in zip(turn.invocations, turn.results, strict=True)
        if call.name in searches
        for name in _named_in(result)
    }


def _named_in(result: ResultCanister) -> list[str]:
    return result.text.split("\n")


def _search(tool: ToolDeclaration) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    said = {"type": SEARCH, "execution": "client", **described, "parameters": tool.schema or _NO_SCHEMA}
    return {**said, **tool.extra.get(WIRE, {})}


def _declaration(tool: ToolDeclaration, name: str) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    extra = tool.extra.get(WIRE, {})
    if tool.kind == "custom":
        form = {} if tool.grammar is None else {"format": dict(tool.grammar)}
        return {"type": "custom", "name": name, **described, **form, **extra}
    schema = tool.schema or _NO_SCHEMA
    return {"type": "function", "name": name, **described, "parameters": schema, "strict": tool.strict, **extra}


def _extra(definition: Mapping[str, Any], shape: type[msgspec.Struct]) -> dict[str, Any]:
    return extra_for(WIRE, unnamed(definition, {"type", "function", "custom", *shape.__struct_fields__}))


class ToolDecoder:
    """The tools of a request as they are found in it; the first of a name counts."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolDeclaration] = {}
        self._hosted: dict[str, HostedTool] = {}
        self._namespaces: dict[str, str] = {}
        self.dropped: list[str] = []

    @property
    def namespaces(self) -> dict[str, str]:
        """The descriptions of the namespaces that have tools; one that says only the name is none."""
        used = {tool.namespace for tool in self._tools.values()}
        return {name: text for name, text in self._namespaces.items() if name in used and text != name}

    @property
    def tools(self) -> tuple[ToolDeclaration, ...]:
        return tuple(self._tools.values())

    @property
    def hosted(self) -> tuple[HostedTool, ...]:
        return tuple(self._hosted.values())

    def take(self, tools: Iterable[Mapping[str, Any]] | None, path: str, space: str = "") -> None:
        """Raises CallerError below `path` for a tool that is not what its type says."""
        for place, tool in enumerate(tools or ()):
            self._take(tool, f"{path}[{place}]", space)

    def _take(self, tool: Mapping[str, Any], path: str, space: str) -> None:
        match tool.get("type", "function"):
            case "function":
                definition = tool.get("function") or tool
                function = read_shape(definition, FunctionTool, path, "a function tool")
                schema, extra = function.parameters or _NO_SCHEMA, _extra(definition, FunctionTool)
                self._add(function.name, function.description, schema, space, strict=function.strict, extra=extra)
            case "custom":
                definition = tool.get("custom") or tool
                custom = read_shape(definition, CustomTool, path, "a custom tool")
                form = custom.format if custom.format and custom.format.get("type") != "text" else None
                fields = {"kind": "custom", "grammar": form, "extra": _extra(definition, CustomTool)}
                self._add(custom.name, custom.description, _CUSTOM_SCHEMA, space, **fields)
            case "namespace":
                named = read_shape(tool, NamespaceTool, path, "a namespace")
                if named.description:
                    self._namespaces.setdefault(named.name, named.description)
                self.take(named.tools, f"{path}.tools", named.name)
            case "tool_search" if tool.get("execution") == "client":
                search = read_shape(tool, SearchTool, path, "a tool search")
                schema = search.parameters or _SEARCH_SCHEMA
                extra = _extra(tool, SearchTool)
                self._add(SEARCH, search.description or _SEARCH_TEXT, schema, "", kind="search", extra=extra)
            case str(kind):
                rest = {name: value for name, value in tool.items() if name != "type"}
                label = rest.get("server_label") if kind == "mcp" else ""
                name, hosted = f"{kind} {label}".rstrip(), HostedTool(WIRE, kind, rest)
                if self._hosted.setdefault(name, hosted) != hosted:
                    self.dropped.append(duplicate_name(name))
            case _:
                raise CallerError("a tool without a type", path=f"{path}.type")

    def _add(self, name: str, text: str | None, schema: Mapping[str, Any], space: str, **fields: Any) -> None:
        full = f"{space}__{name}" if space else name
        tool = ToolDeclaration(full, text or "", schema, namespace=space, **fields)
        if self._tools.setdefault(full, tool) != tool:
            self.dropped.append(duplicate_name(full))

    def choose(self, choice: str | Mapping[str, Any] | None) -> ToolChoice:
        """The choice among them; one of allowed tools leaves only those, one of a hosted tool is `auto`.

        Raises CallerError where it is none.
        """
        if choice is None:
            return "auto"
        kind = choice if isinstance(choice, str) else choice.get("type")
        if isinstance(kind, str) and kind in _MODES:
            return _MODES[kind]
        if isinstance(choice, str) or not isinstance(kind, str):
            raise CallerError("not a tool choice", path="tool_choice", hint="auto, none, required, or a tool")
        if kind == "allowed_tools":
            return self._allow(choice)
        if kind in {"function", "custom"}:
            return NamedTool(self._named(choice, f"tool_choice.{kind}"))
        self.dropped.append(f"tool_choice {kind}")
        return "auto"

    def _allow(self, choice: Mapping[str, Any]) -> ToolChoice:
        asked = choice.get("allowed_tools") or choice
        tools = asked.get("tools") if isinstance(asked, Mapping) else None
        if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
            raise CallerError("allowed_tools without a list of tools", path="tool_choice.tools")
        kinds = [tool.get("type") for tool in tools]
        pairs = list(zip(kinds, tools, strict=True))
        names = [self._named(tool, "tool_choice.tools") for kind, tool in pairs if kind in ("function", "custom")]
        spaces = [tool.get("name") for kind, tool in pairs if kind == "namespace"]
        self._tools = {
            name: tool
            for name, tool in self._tools.items()
            if name in names
            or (tool.namespace and tool.namespace in spaces)
            or (tool.kind == "search" and SEARCH in kinds)
        }
        self._hosted = {key: tool for key, tool in self._hosted.items() if tool.kind in kinds}
        mode = asked.get("mode")
        return "required" if mode == "required" and (self._tools or self._hosted) else "auto"

    def _named(self, chosen: Mapping[str, Any], path: str) -> str:
        """The declared name; a local one where only one namespace has it."""
        inner = chosen.get("function") or chosen.get("custom") or chosen
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or not name:
            raise CallerError("the chosen tool has no name", path=f"{path}.name")
        if isinstance(space := chosen.get("namespace"), str) and space:
            return f"{space}__{name}"
        if name in self._tools:
            return name
        local = [tool.name for tool in self._tools.values() if tool.local == name]
        return local[0] if len(local) == 1 else name
