"""Rewrite a request for its mode: put tools, past calls and results into the wire's own fields, or into text.

Law: equal histories have equal beginnings, so providers' prompt caches stay valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.dialects import (
    ACTION,
    JSON,
    Dialect,
    NotSpellable,
    render_action,
    render_calls,
    render_in_prose,
    render_result,
    render_tools,
)
from callboard.modes.mode import Plan
from callboard.schema.subschemas import change_references

_MODELS = (core.AssistantCanister, core.InvocationCanister)
"""Canisters that come from the model."""

FROM_RESULTS = "Use this to answer the question in one short sentence."
FROM_RESULTS_AS = "Use this to answer the question."
_ANSWER = {"answer": {"type": "string"}}
_SCRATCHPAD = {"scratchpad": {"type": "string"}}


def lower_request(request: core.Request, plan: Plan) -> core.Request:
    """Return the `request` without the parts that the mode of `plan` does not send."""
    lowered = _DECLARED[plan.mode.declares](request, plan)
    # If the reply may call, it cannot be constrained to the schema of an answer.
    may_constrain = plan.supports_json_schema and (not lowered.tools or lowered.tool_choice == "none")
    if request.constraint is not None and lowered.constraint is request.constraint and not may_constrain:
        lowered = replace(lowered, constraint=None)
    if plan.in_prose and any(isinstance(each, core.InvocationCanister) for each in request.canisters):
        ending = (
            "" if request.tool_choice != "none" else FROM_RESULTS if request.constraint is None else FROM_RESULTS_AS
        )
        lowered = replace(lowered, canisters=_render_in_prose(lowered.canisters, ending))
        if request.tool_choice == "none":
            # If such a model sees its tools, it calls again instead of answering.
            constraint = request.constraint if plan.supports_json_schema else None
            lowered = replace(lowered, tools=(), tool_choice="auto", constraint=constraint)
    elif plan.mode.declares == "constraint" and request.tools:
        lowered = replace(lowered, canisters=_render_actions(lowered.canisters, typed=request.constraint is not None))
    elif plan.mode.declares != "wire":
        lowered = replace(lowered, canisters=_spell_history(lowered.canisters, plan.dialect, request.tools))
    return lowered


def select_dialect(request: core.Request, plan: Plan) -> Dialect | None:
    """Return the dialect for the text of the reply to `request`, or None if `plan` does not ask the model to write
    calls.
    """
    if plan.watched is None or not request.tools:
        return None
    if request.tool_choice == "none" and (plan.in_prose or not plan.watched.is_only_format):
        return None
    return plan.watched


def _in_constraint(request: core.Request, plan: Plan) -> core.Request:
    if not request.tools:
        return request
    answer = request.constraint.schema if request.constraint else None
    constraint = action_constraint(request.tools, request.tool_choice, answer)
    return replace(_in_prompt(request, plan), constraint=constraint)


def action_constraint(
    tools: tuple[core.ToolDeclaration, ...], choice: core.ToolChoice, answer: Mapping[str, Any] | None = None
) -> core.Constraint:
    """Return a schema for a call of a declared tool, an answer or a thought, narrowed by the tool choice.

    `answer` is the schema of an answer, by default a string. The choice is inside an object, because providers refuse
    another root.
    """
    definitions: dict[str, Any] = {}
    answer_properties = _ANSWER if answer is None else {"answer": _embed(answer, "answer", definitions)}
    allowed = [tool for tool in tools if not isinstance(choice, core.NamedTool) or tool.name == choice.name]
    calls = [
        _object(
            {"tool": {"type": "string", "enum": [tool.name]}, "arguments": _embed(tool.schema, tool.name, definitions)}
        )
        for tool in (() if choice == "none" else allowed)
    ]
    words = [_object(answer_properties), _object(_SCRATCHPAD)] if choice == "auto" else []
    variants = [*calls, *words] or [_object(answer_properties)]
    schema = _object({"action": {"anyOf": variants}})
    if definitions:
        schema["$defs"] = definitions
    return core.Constraint("agent_response", schema, strict=False)


def _embed(schema: Mapping[str, Any], owner: str, definitions: dict[str, Any]) -> Any:
    """Return a schema without references as it is; otherwise put it under `$defs` and return a reference to it."""
    place = f"#/$defs/{owner}"
    moved = change_references(schema, lambda reference: place + reference[1:] if reference[:1] == "#" else reference)
    if moved == schema:
        return moved
    definitions[owner] = moved
    return {"$ref": place}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _in_prompt(request: core.Request, plan: Plan) -> core.Request:
    if not request.tools:
        return request
    canisters = request.canisters
    if request.tool_choice != "none" or not plan.in_prose:
        declared = render_tools(plan.dialect, request.tools)
        if canisters and isinstance(first := canisters[0], core.SupervisorCanister):
            canisters = (replace(first, content=_append_text(first.content, declared)), *canisters[1:])
        else:
            canisters = (core.SupervisorCanister(core.contents(declared)), *canisters)
    return replace(request, canisters=canisters, tools=(), tool_choice="auto", parallel=None)


_DECLARED: dict[str, Callable[[core.Request, Plan], core.Request]] = {
    "wire": lambda request, _: request,
    "constraint": _in_constraint,
    "prompt": _in_prompt,
}


def _spell_history(
    canisters: Iterable[core.Canister], dialect: Dialect, tools: Sequence[core.ToolDeclaration]
) -> tuple[core.Canister, ...]:
    """Rewrite past calls as the model would have written them, and results as user messages."""
    spelled: list[core.Canister] = []
    places: dict[str, tuple[str, int]] = {}
    """Name of each call and its number in its reply, by identifier."""
    for calling, group in groupby(canisters, lambda canister: isinstance(canister, core.InvocationCanister)):
        if calling:
            calls = [each for each in group if isinstance(each, core.InvocationCanister)]
            places |= {each.identifier: (each.name, number) for number, each in enumerate(calls, 1)}
            _add(spelled, core.AssistantCanister, _spell_calls(dialect, calls, tools))
            continue
        for canister in group:
            match canister:
                case core.ResultCanister():
                    name, number = places.get(canister.invocation_id, ("", 1))
                    _add(spelled, core.UserCanister, render_result(dialect, canister, name, number))
                case _:
                    spelled.append(canister)
    return tuple(spelled)


def _spell_calls(
    dialect: Dialect, calls: Sequence[core.InvocationCanister], tools: Sequence[core.ToolDeclaration]
) -> str:
    """Spell calls in the dialect. If it cannot spell them, use JSON, and otherwise plain words."""
    for each in (dialect, JSON):
        try:
            return render_calls(each, calls, tools)
        except NotSpellable:
            continue
    return "\n".join([render_in_prose(call, None) for call in calls])


def _render_actions(canisters: Iterable[core.Canister], *, typed: bool) -> tuple[core.Canister, ...]:
    """Rewrite the model's turns in the format of its replies: one object at a time, each call followed by its result.

    Args:
        canisters: The conversation.
        typed: Whether answers are values of a schema, so that an answer in JSON is not a text.
    """
    groups = [list(group) for _, group in groupby(canisters, lambda each: isinstance(each, _MODELS))]
    spelled: list[core.Canister] = []
    for group, behind in pairwise([*groups, []]):
        if group and isinstance(group[0], _MODELS):
            _add_turn(spelled, group, behind, typed=typed)
            continue
        for each in group:
            if isinstance(each, core.ResultCanister):
                _add(spelled, core.UserCanister, render_result(ACTION, each))
            else:
                spelled.append(each)
    return tuple(spelled)


def _add_turn(
    spelled: list[core.Canister], turn: Sequence[core.Canister], behind: list[core.Canister], *, typed: bool
) -> None:
    """Add one turn of the model and the results of its calls, which are removed from `behind`."""
    content = [part for each in turn if isinstance(each, core.AssistantCanister) for part in each.content]
    thought = "".join([part.text for part in content if isinstance(part, core.ReasoningContent)])
    text = "".join([part.text for part in content if isinstance(part, core.TextualContent)])
    calls = [each for each in turn if isinstance(each, core.InvocationCanister)]
    for part in content:
        if not isinstance(part, (core.ReasoningContent, core.TextualContent)):
            _add(spelled, core.AssistantCanister, part)
    if not calls:
        _add(spelled, core.AssistantCanister, _answer(thought, text, typed=typed))
    beside = "\n\n".join([each for each in (thought, text) if each])
    for call, result in zip(calls, _take_results(behind, calls), strict=True):
        _add(spelled, core.AssistantCanister, render_action(beside, call=call))
        _add(spelled, core.UserCanister, render_result(ACTION, result, call.name))
        beside = ""


def _take_results(
    canisters: list[core.Canister], calls: Sequence[core.InvocationCanister]
) -> list[core.ResultCanister]:
    missing = Counter([each.identifier for each in calls])
    results_by_call: dict[str, list[core.ResultCanister]] = {}
    others: list[core.Canister] = []
    for each in canisters:
        if isinstance(each, core.ResultCanister) and missing[each.invocation_id] > 0:
            missing[each.invocation_id] -= 1
            results_by_call.setdefault(each.invocation_id, []).append(each)
        else:
            others.append(each)
    canisters[:] = others
    remaining = {identifier: iter(results) for identifier, results in results_by_call.items()}
    return [
        next(remaining.get(each.identifier, iter(())), None)
        or core.error_result(each.identifier, "cancelled", "the call was not run")
        for each in calls
    ]


def _answer(thought: str, text: str, *, typed: bool) -> str:
    """Render an answer. An object that does not answer a schema stays as the model wrote it."""
    if not text:
        return render_action(thought) if thought else ""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return render_action(thought, answer=text)
    if typed and value is not None:
        return render_action(thought, answer=value)
    return text if isinstance(value, (dict, list)) else render_action(thought, answer=text)


def _render_in_prose(canisters: Iterable[core.Canister], ending: str) -> tuple[core.Canister, ...]:
    """Rewrite each question with its calls and their results, in plain words.

    The model's text beside its calls is omitted: small models continue that text instead of answering.
    """
    every = list(canisters)
    results = {each.invocation_id: each for each in every if isinstance(each, core.ResultCanister)}
    lowered: list[core.Canister] = []
    calling = False
    for canister, following in pairwise([*every, None]):
        match canister:
            case core.InvocationCanister():
                _add(lowered, core.UserCanister, render_in_prose(canister, results.get(canister.identifier)))
                calling = True
            case core.ResultCanister():
                pass
            case core.AssistantCanister() if isinstance(following, core.InvocationCanister):
                pass
            case _ if canister is not None:
                lowered.append(canister)
                calling = False
    if calling and ending:
        _add(lowered, core.UserCanister, ending)
    return tuple(lowered)


def _add(
    canisters: list[core.Canister], kind: type[core.AssistantCanister | core.UserCanister], part: str | core.Content
) -> None:
    last = canisters[-1] if canisters else None
    if not part:
        return
    if not isinstance(last, kind):
        canisters.append(kind(core.contents(part)))
        return
    canisters[-1] = replace(last, content=_append_text(last.content, part))


def _append_text(content: tuple[core.Content, ...], part: str | core.Content) -> tuple[core.Content, ...]:
    """Append a part; adjacent texts are merged here, because wires would join them with a separator."""
    if isinstance(part, core.TextualContent):
        part = part.text
    if not isinstance(part, str):
        return (*content, part)
    if content and isinstance(last := content[-1], core.TextualContent) and last.extra is None:
        return (*content[:-1], replace(last, text=f"{last.text}\n\n{part}"))
    return (*content, core.TextualContent(part))
