"""Tools and the choice among them, both ways.

Owns what a tool is called on this wire: a namespaced one by its namespace and local name, any other by a safe
name. Knows nothing of items or bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from callboard.core import (
    CUSTOM_SCHEMA,
    HostedTool,
    NamedTool,
    Request,
    ToolChoice,
    ToolDeclaration,
)
from callboard.errors import CallerError
from callboard.wires.naming import Naming
from callboard.wires.responses.reading import read
from callboard.wires.responses.shapes import (
    SEARCH,
    CustomTool,
    FunctionTool,
    NamespaceTool,
    SearchTool,
)

WIRE = "responses"
_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_CUSTOM_SCHEMA: Mapping[str, Any] = dict(CUSTOM_SCHEMA)
_SEARCH_TEXT = "Finds tools by what they do; those that it finds can be called from then on."
_SEARCH_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
}
_MODES: Mapping[Any, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}
_SAFE = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Spelling:
    """What the tools of one request are called. `names` leads back from a name on the wire to the declared one,
    where the two differ; a namespaced tool's is `namespace__local`.
    """

    def __init__(self, request: Request) -> None:
        self._naming = Naming(request)
        self._declared = {tool.name: tool for tool in request.tools}
        self._apart = {name for name, tool in self._declared.items() if _apart(tool)}
        self.names = self._naming.reverse
        for name in self._apart:
            tool = self._declared[name]
            if name != (wire := f"{tool.namespace}__{tool.local}"):
                self.names[wire] = name

    def called(self, name: str) -> dict[str, Any]:
        """The fields that name the tool."""
        if name in self._apart:
            tool = self._declared[name]
            return {"name": tool.local, "namespace": tool.namespace}
        return {"name": self._naming.on_wire(name)}

    def is_custom(self, name: str) -> bool:
        tool = self._declared.get(name)
        return tool is not None and tool.kind == "custom"

    def tools(self) -> list[dict[str, Any]]:
        """The declarations; the tools of a namespace stand where its first one stands."""
        listed: list[dict[str, Any]] = []
        spaces: dict[str, list[dict[str, Any]]] = {}
        for tool in self._declared.values():
            if tool.name not in self._apart:
                listed.append(_declaration(tool, self._naming.on_wire(tool.name)))
                continue
            space = tool.namespace
            if space not in spaces:
                spaces[space] = []
                listed.append({"type": "namespace", "name": space, "description": space, "tools": spaces[space]})
            spaces[space].append(_declaration(tool, tool.local))
        return listed

    def choice(self, choice: ToolChoice) -> Any:
        if not isinstance(choice, NamedTool):
            return choice
        kind = "custom" if self.is_custom(choice.name) else "function"
        return {"type": kind, "name": self.called(choice.name)["name"]}


def _apart(tool: ToolDeclaration) -> bool:
    """Whether the tool goes by its namespace and local name."""
    return bool(_SAFE.fullmatch(tool.namespace) and _SAFE.fullmatch(tool.local))


def _declaration(tool: ToolDeclaration, name: str) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    if tool.kind == "custom":
        form = {} if tool.grammar is None else {"format": dict(tool.grammar)}
        return {"type": "custom", "name": name, **described, **form}
    schema = tool.schema or _NO_SCHEMA
    return {"type": "function", "name": name, **described, "parameters": schema, "strict": tool.strict}


class Declared:
    """The tools of a request as they are found in it; the first of a name counts."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolDeclaration] = {}
        self._hosted: dict[str, HostedTool] = {}
        self.dropped: list[str] = []

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
                function = read(tool.get("function") or tool, FunctionTool, path, "a function tool")
                schema = function.parameters or _NO_SCHEMA
                self._add(function.name, function.description, schema, space, strict=function.strict)
            case "custom":
                custom = read(tool.get("custom") or tool, CustomTool, path, "a custom tool")
                form = custom.format if custom.format and custom.format.get("type") != "text" else None
                self._add(custom.name, custom.description, _CUSTOM_SCHEMA, space, kind="custom", grammar=form)
            case "namespace":
                named = read(tool, NamespaceTool, path, "a namespace")
                if named.description and named.description != named.name:
                    self.dropped.append(f"description of the namespace {named.name}")
                self.take(named.tools, f"{path}.tools", named.name)
            case "tool_search" if tool.get("execution") == "client":
                search = read(tool, SearchTool, path, "a tool search")
                self._add(SEARCH, search.description or _SEARCH_TEXT, search.parameters or _SEARCH_SCHEMA, "")
            case str(kind):
                rest = {name: value for name, value in tool.items() if name != "type"}
                label = rest.get("server_label") if kind == "mcp" else ""
                self._hosted.setdefault(f"{kind} {label}", HostedTool(WIRE, kind, rest))
            case _:
                raise CallerError("a tool without a type", path=f"{path}.type")

    def _add(self, name: str, text: str | None, schema: Mapping[str, Any], space: str, **fields: Any) -> None:
        full = f"{space}__{name}" if space else name
        if full not in self._tools:
            self._tools[full] = ToolDeclaration(full, text or "", schema, namespace=space, **fields)

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
            if name in names or (tool.namespace and tool.namespace in spaces) or (name == SEARCH and SEARCH in kinds)
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
