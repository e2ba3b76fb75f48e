"""Encode tools and the choice among them, and decode them.

On this wire a namespaced tool is called by its namespace and its local name, any other by a safe name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.client_input import extra_for, read_shape, unnamed_fields
from callboard.wires.common.group_turns import Turn, group_turns
from callboard.wires.common.tool_declarations import (
    NO_SCHEMA,
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

WIRE = "responses"
NOTHING_FOUND = "No tools found."
"""Result text that a model reads if a tool search found none."""
_SEARCH_TEXT = "Finds tools by what they do; those that it finds can be called from then on."
_SEARCH_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
}
_MODES: Mapping[Any, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}


class ToolEncoder:
    """The tools of one request on the wire.

    `names` maps a name on the wire to the declared name if the two differ. The name of a namespaced tool is
    `namespace__local`. Tools that a search found are declared in its output.
    """

    def __init__(self, request: core.Request) -> None:
        self._names = ToolNames(request)
        self.strict_tools = StrictTools(WIRE)
        self._declared = {tool.name: self.strict_tools.fit(tool) for tool in request.tools}
        self._namespaced = {
            name
            for name, tool in self._declared.items()
            if tool.kind != "search"
            and ToolNames.safe.fullmatch(tool.namespace)
            and ToolNames.safe.fullmatch(tool.local)
        }
        """Tools that are called by their namespace and local name."""
        self._namespaces = request.namespaces
        searches = {tool.name for tool in request.tools if tool.kind == "search"}
        self._found_by_search = _search_results(request, searches) - searches

    @property
    def names(self) -> dict[str, str]:
        names = self._names.reverse
        if SEARCH not in self._declared:
            names.update((SEARCH, tool.name) for tool in self._declared.values() if tool.kind == "search")
        for name in self._namespaced:
            tool = self._declared[name]
            if name != (wire := f"{tool.namespace}__{tool.local}"):
                names[wire] = name
        return names

    def name_fields(self, name: str) -> dict[str, Any]:
        """The fields that name the tool."""
        if name in self._namespaced:
            tool = self._declared[name]
            return {"name": tool.local, "namespace": tool.namespace}
        return {"name": self._names.on_wire(name)}

    def kind(self, name: str) -> Literal["function", "custom", "search"]:
        tool = self._declared.get(name)
        return "function" if tool is None else tool.kind

    def encode_tools(self) -> list[dict[str, Any]]:
        """The declarations; the tools of a namespace are where its first one is."""
        return self._encode_list(tool for tool in self._declared.values() if tool.name not in self._found_by_search)

    def encode_search_output(self, result: core.ResultCanister) -> tuple[list[dict[str, Any]], bool]:
        """The declarations of the tools that a search's result names, and whether it holds nothing else."""
        names = [name for name in _names_in(result) if name in self._declared]
        is_whole = result.text in ("\n".join(names), NOTHING_FOUND)
        return self._encode_list(self._declared[name] for name in names), is_whole

    def _encode_list(self, tools: Iterable[core.ToolDeclaration]) -> list[dict[str, Any]]:
        encoded: list[dict[str, Any]] = []
        spaces: dict[str, list[dict[str, Any]]] = {}
        for tool in tools:
            if tool.kind == "search":
                encoded.append(_encode_search(tool))
                continue
            if tool.name not in self._namespaced:
                encoded.append(_encode_tool(tool, self._names.on_wire(tool.name)))
                continue
            space = tool.namespace
            if space not in spaces:
                spaces[space] = []
                text = self._namespaces.get(space) or space  # the API requires one
                encoded.append({"type": "namespace", "name": space, "description": text, "tools": spaces[space]})
            spaces[space].append(_encode_tool(tool, tool.local))
        return encoded

    def encode_choice(self, choice: core.ToolChoice) -> Any:
        if not isinstance(choice, core.NamedTool):
            return choice
        kind = self.kind(choice.name)
        if kind == "search":
            return {"type": "allowed_tools", "mode": "required", "tools": [{"type": SEARCH}]}
        return {"type": kind, "name": self.name_fields(choice.name)["name"]}

    @property
    def dropped(self) -> list[str]:
        """Descriptions of namespaces whose tools are not called by them, and what tools lose."""
        apart = {self._declared[name].namespace for name in self._namespaced}
        return self.strict_tools.dropped + dropped_descriptions(
            space for space in self._namespaces if space not in apart
        )


def _search_results(request: core.Request, searches: set[str]) -> set[str]:
    """The names in the results of tool searches."""
    if not searches or searches.isdisjoint(called_names(request.canisters)):
        return set()
    return {
        name
        for turn in group_turns(request.canisters)
        if isinstance(turn, Turn)
        for call, result in zip(turn.invocations, turn.results, strict=True)
        if call.name in searches
        for name in _names_in(result)
    }


def _names_in(result: core.ResultCanister) -> list[str]:
    return result.text.split("\n")


def _encode_search(tool: core.ToolDeclaration) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    fields = {"type": SEARCH, "execution": "client", **described, "parameters": tool.schema}
    return {**fields, **tool.extra.get(WIRE, {})}


def _encode_tool(tool: core.ToolDeclaration, name: str) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    extra = tool.extra.get(WIRE, {})
    if tool.kind == "custom":
        form = {} if tool.grammar is None else {"format": dict(tool.grammar)}
        return {"type": "custom", "name": name, **described, **form, **extra}
    return {"type": "function", "name": name, **described, "parameters": tool.schema, "strict": tool.strict, **extra}


def _extra(definition: Mapping[str, Any], shape: type[msgspec.Struct]) -> dict[str, Any]:
    return extra_for(WIRE, unnamed_fields(definition, {"type", "function", "custom", *shape.__struct_fields__}))


class ToolDecoder:
    """Tools and the choice among them, out of a client's request; the first tool of a name counts."""

    def __init__(self) -> None:
        self._tools: dict[str, core.ToolDeclaration] = {}
        self._hosted: dict[str, core.HostedTool] = {}
        self._namespaces: dict[str, str] = {}
        self.dropped: list[str] = []

    @property
    def namespaces(self) -> dict[str, str]:
        """Return the descriptions of the namespaces with tools, except descriptions that only repeat the name."""
        used = {tool.namespace for tool in self._tools.values()}
        return {name: text for name, text in self._namespaces.items() if name in used and text != name}

    @property
    def tools(self) -> tuple[core.ToolDeclaration, ...]:
        return tuple(self._tools.values())

    @property
    def hosted(self) -> tuple[core.HostedTool, ...]:
        return tuple(self._hosted.values())

    def decode(self, tools: Iterable[Mapping[str, Any]] | None, path: str, space: str = "") -> None:
        """Raises CallerError below `path` for a tool that is not what its type says."""
        for index, tool in enumerate(tools or ()):
            self._decode_tool(tool, f"{path}[{index}]", space)

    def _decode_tool(self, tool: Mapping[str, Any], path: str, space: str) -> None:
        match tool.get("type", "function"):
            case "function":
                definition = tool.get("function") or tool
                function = read_shape(definition, FunctionTool, path, "a function tool")
                schema, extra = function.parameters or NO_SCHEMA, _extra(definition, FunctionTool)
                self._add(function.name, function.description, schema, space, strict=function.strict, extra=extra)
            case "custom":
                definition = tool.get("custom") or tool
                custom = read_shape(definition, CustomTool, path, "a custom tool")
                form = custom.format if custom.format and custom.format.get("type") != "text" else None
                fields = {"kind": "custom", "grammar": form, "extra": _extra(definition, CustomTool)}
                self._add(custom.name, custom.description, dict(core.CUSTOM_SCHEMA), space, **fields)
            case "namespace":
                named = read_shape(tool, NamespaceTool, path, "a namespace")
                if named.description:
                    self._namespaces.setdefault(named.name, named.description)
                self.decode(named.tools, f"{path}.tools", named.name)
            case "tool_search" if tool.get("execution") == "client":
                search = read_shape(tool, SearchTool, path, "a tool search")
                schema = search.parameters or _SEARCH_SCHEMA
                extra = _extra(tool, SearchTool)
                self._add(SEARCH, search.description or _SEARCH_TEXT, schema, "", kind="search", extra=extra)
            case str(kind):
                rest = {name: value for name, value in tool.items() if name != "type"}
                label = rest.get("server_label") if kind == "mcp" else ""
                name, hosted = f"{kind} {label}".rstrip(), core.HostedTool(WIRE, kind, rest)
                if self._hosted.setdefault(name, hosted) != hosted:
                    self.dropped.append(duplicate_name(name))
            case _:
                raise CallerError("a tool without a type", path=f"{path}.type")

    def _add(self, name: str, text: str | None, schema: Mapping[str, Any], space: str, **fields: Any) -> None:
        full = f"{space}__{name}" if space else name
        tool = core.ToolDeclaration(full, text or "", schema, namespace=space, **fields)
        if self._tools.setdefault(full, tool) != tool:
            self.dropped.append(duplicate_name(full))

    def decode_choice(self, choice: str | Mapping[str, Any] | None) -> core.ToolChoice:
        """The choice among them; one of allowed tools leaves only those, one of a hosted tool is `auto`.

        Raises CallerError if it is invalid.
        """
        if choice is None:
            return "auto"
        kind = choice if isinstance(choice, str) else choice.get("type")
        if isinstance(kind, str) and kind in _MODES:
            return _MODES[kind]
        if isinstance(choice, str) or not isinstance(kind, str):
            raise CallerError("not a tool choice", path="tool_choice", hint="auto, none, required, or a tool")
        if kind == "allowed_tools":
            return self._decode_allowed(choice)
        if kind in {"function", "custom"}:
            return core.NamedTool(self._declared_name(choice, f"tool_choice.{kind}"))
        self.dropped.append(f"tool_choice {kind}")
        return "auto"

    def _decode_allowed(self, choice: Mapping[str, Any]) -> core.ToolChoice:
        allowed = choice.get("allowed_tools") or choice
        tools = allowed.get("tools") if isinstance(allowed, Mapping) else None
        if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
            raise CallerError("allowed_tools without a list of tools", path="tool_choice.tools")
        kinds = [tool.get("type") for tool in tools]
        pairs = list(zip(kinds, tools, strict=True))
        names = [
            self._declared_name(tool, "tool_choice.tools") for kind, tool in pairs if kind in ("function", "custom")
        ]
        spaces = [tool.get("name") for kind, tool in pairs if kind == "namespace"]
        self._tools = {
            name: tool
            for name, tool in self._tools.items()
            if name in names
            or (tool.namespace and tool.namespace in spaces)
            or (tool.kind == "search" and SEARCH in kinds)
        }
        self._hosted = {key: tool for key, tool in self._hosted.items() if tool.kind in kinds}
        mode = allowed.get("mode")
        return "required" if mode == "required" and (self._tools or self._hosted) else "auto"

    def _declared_name(self, chosen: Mapping[str, Any], path: str) -> str:
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
