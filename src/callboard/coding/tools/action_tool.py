"""One tool of several actions: `file(action="read", path=...)`.

The tool's schema joins the schemas of its actions, and the argument `action` chooses one. Small models omit it, write a
path instead or use another tool's flags, so the arguments that fit also decide.

Law: every tool checks an action's arguments by the action's own schema, with the action's own messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

from callboard.errors import ToolDefinitionError
from callboard.schema import ArgumentsInvalid
from callboard.schema.coercion import as_object
from callboard.schema.errors import MISSING, shorten
from callboard.text.suggest import find_closest
from callboard.tools import Context, Tool

ACTION = "action"
"""The argument that names the action."""
_ANNOTATIONS = ("description", "default")
"""Keywords of a property that do not restrict its values."""


class ToolAction(Tool[..., Any]):
    """A tool whose arguments may have other names too: `aliases` maps these to their own."""

    def __init__(
        self, function: Callable[..., Any], *, aliases: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(function, **options)
        self.aliases = dict(aliases or {})

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values = as_object(arguments)
        renamed = {self.aliases.get(name, name): value for name, value in values.items()}
        return super().validate(renamed if len(renamed) == len(values) else values)


def action(**options: Any) -> Callable[[Callable[..., Any]], ToolAction]:
    """Make a function a ToolAction: `@action(aliases={"path": "directory"}, ...)`, with the options of `@tool`."""
    return lambda function: ToolAction(function, **options)


class ActionTool(Tool[..., Any]):
    """A tool that calls one of its actions.

    Args:
        name: The tool's name.
        description: Its first line; the actions are listed below.
        actions: The actions by the value of the argument `action`. Either all or none are `async def`.
        default: The action of a call that names no action, if the arguments fit it; by default, the only action
            that they fit.
        options: Options of `@tool`; `cli` and `subjects` are added to the options of the actions.

    Raises:
        ToolDefinitionError: Some actions are `async def` and others are not.
    """

    def __init__(
        self, name: str, description: str, actions: Mapping[str, Tool[..., Any]], *, default: str = "", **options: Any
    ) -> None:
        if len({each.is_async for each in actions.values()}) != 1:
            raise ToolDefinitionError(
                "some of its actions are async def and others are not", path=name, hint="make them all the same"
            )
        self.actions = dict(actions)
        self._default = default
        self.purpose = description
        for each in ("cli", "subjects"):
            of_actions = {key: value for tool in actions.values() for key, value in getattr(tool, each).items()}
            options[each] = {**of_actions, **(options.get(each) or {})}
        rows = {key: " ".join(each.schema["properties"]) for key, each in actions.items()}
        rows |= {"": rows[default]} if default else {}
        options["cli"] |= {f"{ACTION}={key}": row for key, row in rows.items()}
        super().__init__(_make_function(self), name=name, **options)
        self.repeatable = self._is_repeatable
        names = {word: key for key, each in self.actions.items() for word in (key, each.name)}
        self.calls = {word: f"{name} with {ACTION}={key!r}" for word, key in names.items() if word != name}

    def only(self, names: Collection[str]) -> ActionTool | None:
        """Return the same tool with only the actions of these names; None if there is none."""
        actions = {key: each for key, each in self.actions.items() if each.name in names}
        if not actions:
            return None
        known = {ACTION, *(name for each in actions.values() for name in each.schema["properties"])}
        return ActionTool(
            self.name,
            self.purpose,
            actions,
            default=self._default if self._default in actions else "",
            approval=any(each.approval for each in actions.values()),
            timeout=self.timeout,
            strict=self.strict,
            cli={flag: name for flag, name in self.cli.items() if name in known},
            subjects={name: subject for name, subject in self.subjects.items() if name in known},
        )

    @property
    def description(self) -> str:
        lines = []
        for key, tool in self.actions.items():
            required = tool.schema.get("required", ())
            names = [name if name in required else f"{name}?" for name in tool.schema["properties"]]
            lines.append(f"- {key}({', '.join(names)}): {tool.description.partition(chr(10))[0]}")
        return "\n".join([f"{self.purpose} Actions:", *lines])

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        names = dict.fromkeys(name for each in self.actions.values() for name in each.schema["properties"])
        choice = {"type": "string", "enum": [*self.actions], "description": "What to do"}
        return {
            "type": "object",
            "properties": {ACTION: choice, **{name: self._property(name) for name in names}},
            "required": [ACTION],
            "additionalProperties": False,
        }

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Choose the action, and validate the arguments by its schema. Raises ArgumentsInvalid."""
        values = as_object(arguments)
        # A model that has to write every argument writes null for those that it does not mean.
        name, rest = self._choose({key: value for key, value in values.items() if value is not None})
        return {**self.actions[name].validate(rest), ACTION: name}

    def _is_repeatable(self, arguments: Mapping[str, Any]) -> bool:
        name = arguments.get(ACTION)
        return isinstance(name, str) and name in self.actions and self.actions[name].idempotent

    def _choose(self, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        rest = {key: value for key, value in arguments.items() if key != ACTION}
        chosen = arguments.get(ACTION, "")
        if chosen in (*self.actions,):
            return chosen, rest
        if chosen != "":
            name = self._default_path(chosen, rest)
            if not name:
                raise ArgumentsInvalid([((ACTION,), _describe_wrong_action(chosen, self.actions))])
            rest[name] = chosen
        if "type" not in self.schema["properties"] and rest.get("type") in (*self.actions,):
            return rest.pop("type"), rest
        fitting = [name for name, each in self.actions.items() if _accepts(each, rest)]
        if self._default in fitting or len(fitting) == 1:
            return (self._default if self._default in fitting else fitting[0]), rest
        which = f"these arguments fit {_join_or(fitting)}" if fitting else f"there are {_join_or(self.actions)}"
        raise ArgumentsInvalid([((ACTION,), f"{MISSING}: say which action; {which}")])

    def _default_path(self, value: Any, arguments: Mapping[str, Any]) -> str:
        """Return the path argument of the default action, where a path was written for the action: `file src/a.py`."""
        default = self.actions.get(self._default)
        if (
            default is None
            or not isinstance(value, str)
            or (find_closest(value, self.actions) and not set(value) & {".", "/"})
        ):
            return ""
        aliases = getattr(default, "aliases", {})
        used = {aliases.get(name, name) for name in arguments}
        return next(
            (name for name, subject in default.subjects.items() if subject == "path" and name not in {*used, *aliases}),
            "",
        )

    def _property(self, name: str) -> dict[str, Any]:
        """Return the schema of an argument: what any action takes, with the descriptions of the actions that differ."""
        schemas = {
            key: each.schema["properties"][name]
            for key, each in self.actions.items()
            if name in each.schema["properties"]
        }
        kinds: list[dict[str, Any]] = []
        meanings: dict[str, list[str]] = {}
        for key, schema in schemas.items():
            kinds += [kind for kind in _alternatives(schema) if kind not in kinds]
            meanings.setdefault(schema.get("description", ""), []).append(key)
        kind = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        description = "; ".join(
            text if len(each) == len(self.actions) else f"{text} ({', '.join(each)})".lstrip()
            for text, each in meanings.items()
        )
        return {"description": description, **kind}


def _make_function(made: ActionTool) -> Callable[..., Any]:
    """Return the function of the tool; its arguments are those that `validate` returns."""
    actions = made.actions

    def act(context: Context, **arguments: Any) -> Any:
        if arguments.get(ACTION) not in (*actions,):  # not validated (mode parsed)
            arguments = made.validate(arguments)
        name = arguments.pop(ACTION)
        tool = actions[name]
        extra = {tool.context_parameter: context} if tool.context_parameter else {}
        return tool.function(**arguments, **extra)

    async def act_later(context: Context, **arguments: Any) -> Any:
        return await act(context, **arguments)

    function: Any = act_later if any(each.is_async for each in actions.values()) else act
    keyword = inspect.Parameter.KEYWORD_ONLY
    # As it is called, not as it is written: which arguments there are is the schema's to say.
    function.__signature__ = inspect.Signature(
        [inspect.Parameter("context", keyword, annotation=Context), inspect.Parameter(ACTION, keyword, annotation=str)]
    )
    acting: Callable[..., Any] = function
    return acting


def _alternatives(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives of a schema, without null: here a call omits unused arguments."""
    kind = {keyword: value for keyword, value in schema.items() if keyword not in _ANNOTATIONS}
    ways = kind["anyOf"] if [*kind] == ["anyOf"] else [kind]
    return [way for way in ways if way != {"type": "null"}]


def _accepts(tool: Tool[..., Any], arguments: Iterable[str]) -> bool:
    aliases = getattr(tool, "aliases", {})
    names = {aliases.get(name, name) for name in arguments}
    required: set[str] = {*tool.schema.get("required", ())}
    return required <= names <= {*tool.schema["properties"]}


def _describe_wrong_action(value: Any, actions: Mapping[str, Any]) -> str:
    expected = f"Input should be {_join_or(actions)}"
    if not isinstance(value, str):
        return f"{expected}, not {shorten(str(value))}"
    close = find_closest(value, actions)
    return f"{expected}; did you mean '{close[0]}'?" if close else expected


def _join_or(names: Iterable[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
