"""Check and read the arguments of agents and runs.

A misspelled word or a value of the wrong type is refused at once, with the name of its parameter. Otherwise it would
act as the default, or fail in the middle of a run. A history consists of canisters or of messages of Chat Completions.
Anything else in it is refused, because the model would miss a part of the conversation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, get_args

from msgspec.structs import replace

from callboard import core
from callboard.core.ports import Answer, Approve, Clock, Journal, Model, Store
from callboard.errors import CallerError
from callboard.execution import DEFAULT_LIMIT, AfterCall, BeforeCall, OnError
from callboard.loop import AnswerAfter, Limits, OnRepeatedCall, QuotedCalls
from callboard.text.suggest import suggest
from callboard.tools import Context, Ensemble, Policy

if TYPE_CHECKING:
    from callboard.agent.run import Instructions, NewEventFilter
    from callboard.loop import ContextWindow

_CANISTERS: Final = (
    core.UserCanister,
    core.AssistantCanister,
    core.SupervisorCanister,
    core.DocumentCanister,
    core.InvocationCanister,
    core.ResultCanister,
)
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_error": get_args(OnError),
    "on_repeated_call": get_args(OnRepeatedCall),
    "quoted_calls": get_args(QuotedCalls),
    "answer_after": get_args(AnswerAfter),
}
"""Parameters that take one of a few words."""
_SAID: Final = ("content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning")
"""Members of a Chat Completions message that can hold its content."""


def _has_method(value: Any, name: str) -> bool:
    return not isinstance(value, type) and callable(getattr(value, name, None))


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


_KINDS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "model": (
        lambda value: isinstance(value, str) or _has_method(value, "batches"),
        "a Model or the name of one, such as 'openai:gpt-4o'",
    ),
    "ensembles": (
        lambda value: isinstance(value, tuple) and all(isinstance(each, Ensemble) for each in value),
        "a list of Ensembles",
    ),
    "skills": (
        lambda value: isinstance(value, tuple) and all(isinstance(each, str | Path) for each in value),
        "a list of paths",
    ),
    "instructions": (lambda value: isinstance(value, str) or callable(value), "a text or a function of the context"),
    "base_url": (lambda value: isinstance(value, str), "a text"),
    "mode": (lambda value: isinstance(value, str), "a text"),
    "profile": (lambda value: isinstance(value, Mapping), "a mapping of facts"),
    "tool_choice": (
        lambda value: isinstance(value, core.NamedTool) or value in ("auto", "none", "required"),
        "'auto', 'none', 'required' or NamedTool(name)",
    ),
    "context_window": (lambda value: _has_method(value, "show"), "ContextWindow(...)"),
    "event_filter": (callable, "a function that makes a Stage, such as HallucinatedResultFilter"),
    "clock": (callable, "a function that gives the time in UTC"),
    "results": (lambda value: isinstance(value, Mapping), "a mapping of identifiers to results"),
    "approvals": (lambda value: isinstance(value, Mapping), "a mapping of identifiers to answers"),
    "context": (lambda value: isinstance(value, Context), "a tool's Context"),
    "journal": (lambda value: callable(getattr(value, "begin_call", None)), "a Journal"),
    "limits": (lambda value: isinstance(value, Limits), "Limits(...)"),
    "policy": (lambda value: isinstance(value, Policy), "a Policy"),
    "auxdata": (lambda value: isinstance(value, Mapping), "a mapping"),
    "max_parallel_calls": (_is_count, "a count of calls, at least 1"),
    "keep_order": (lambda value: isinstance(value, bool), "True or False"),
    "max_steps": (_is_count, "a count of replies, at least 1"),
    "max_tokens": (_is_count, "a count of tokens, at least 1"),
    "temperature": (
        lambda value: type(value) in {int, float} and 0 <= value < math.inf,
        "a number from 0 up",
    ),
    "controls": (
        lambda value: (
            isinstance(value, core.Controls)
            and all(
                (set_value := getattr(value, name)) is None or _KINDS[name][0](set_value)
                for name in ("temperature", "max_tokens")
            )
        ),
        "Controls(...) with a temperature from 0 up, and max_tokens from 1 up",
    ),
    "approve": (callable, "a function of the invocation and the reason"),
    "before_call": (callable, "a function of the invocation"),
    "after_call": (callable, "a function of the invocation and its result"),
    "output_validator": (callable, "a function of the output, sync or async"),
    "store": (lambda value: callable(getattr(value, "append", None)), "a Store, such as Conversation.begin()"),
}
"""Parameters that take a certain type: how to check it, and its name for errors."""


def check_arguments(**arguments: Any) -> None:
    """Refuse arguments that an agent or a run cannot use. None means the default.

    Args:
        arguments: The arguments by their names.

    Raises:
        CallerError: An argument is not one of its parameter's words, or has the wrong type.
        TypeError: There is no such parameter.
    """
    for name, value in arguments.items():
        if not (name in _WORDS or name in _KINDS or name == "history"):
            raise TypeError(f"unexpected keyword argument {name!r}; {suggest(name, RunOptions.__annotations__)}")
        if value is None and name != "model":
            continue
        if name in _WORDS and value not in _WORDS[name]:
            words = _WORDS[name]
            hint = suggest(value, words) if isinstance(value, str) else f"there are {', '.join(words)}"
            raise CallerError(f"{value!r} is not valid", path=name, hint=hint)
        if name in _KINDS:
            fits, kind = _KINDS[name]
            if not fits(value):
                raise CallerError(f"a {type(value).__name__} is not valid", path=name, hint=f"give {kind}")


@dataclass(kw_only=True)
class AgentSettings:
    """The settings of an agent that apply to all its runs, except its model, tools and output type."""

    instructions: Instructions = ""
    """Instructions for the model: a text, or a function of the run's context. They become the supervisor's canister."""
    controls: core.Controls | None = None
    """Sampling of replies and their maximum length."""
    tool_choice: core.ToolChoice = "auto"
    """Whether the model has to call, and which tool. This applies until the model has made a call."""
    limits: Limits | None = None
    """Limits of each run."""
    on_repeated_call: OnRepeatedCall | None = None
    """Treatment of calls that repeat an earlier call of the run. By default the model's profile decides.

    "run" runs the call again. "warn" returns the earlier result with advice to do something else, if nothing has
    changed since. "final_answer" returns the earlier result for calls that are idempotent or from the previous round.
    If all calls of a reply are such repeats, it asks for the last reply.
    """
    answer_after: AnswerAfter | None = None
    """When to ask for the last reply. By default the model's profile decides."""
    context_window: ContextWindow | None = None
    """Chooses which parts of a long conversation the model sees."""
    event_filter: NewEventFilter | None = None
    """Creates the Stage that filters a reply's events before anything else sees them."""
    policy: Policy | None = None
    """Rules for calls: which run, which are denied, and which need `approve`."""
    approve: Approve | None = None
    """Callback that approves calls: a call runs only if it returns "allow" or True. Without it no call is approved."""
    quoted_calls: QuotedCalls = "ask"
    """Whether to ask `approve` about a call that the model may have copied word for word from a text that it read."""
    before_call: BeforeCall | None = None
    """Callback that sees each call before it runs."""
    after_call: AfterCall | None = None
    """Callback that sees each result."""
    max_parallel_calls: int = DEFAULT_LIMIT
    """Maximum calls of a reply that run at the same time. With 1 they run in their order."""
    keep_order: bool = False
    """Whether calls of tools that are not idempotent run alone and in their order, such as edits between reads."""
    on_error: OnError = "feedback"
    """With "fail_fast" a tool that raises ends the run and rolls the conversation back."""
    auxdata: Mapping[str, Any] | None = None
    """Data that tools find in their Context."""
    store: Store | None = None
    """Stores every canister."""
    clock: Clock = lambda: datetime.now(UTC)  # the default of a field
    """The time in UTC."""


class RunOptions(TypedDict, total=False):
    """The options of a run, besides its prompt."""

    history: Iterable[core.Canister | Mapping[str, Any]]
    """The conversation so far: canisters, or messages of Chat Completions."""
    results: Mapping[str, Any] | None
    """Results for waiting calls of the history, by identifier: a tool's value, or a ToolError."""
    approvals: Mapping[str, Answer] | None
    """Decisions about waiting calls, by identifier: the answers that `approve` would have returned."""
    auxdata: Mapping[str, Any] | None
    """Data for tools, added to the agent's own."""
    approve: Approve | None
    """Callback that approves calls, instead of the agent's own."""
    model: Model | str | None
    """Model of the run, instead of the agent's own."""
    instructions: Instructions | None
    """Instructions of the run, instead of the agent's own and the history's."""
    limits: Limits | None
    """Limits of the run, instead of the agent's own."""
    controls: core.Controls | None
    """Controls of the run. Each value that is set replaces the agent's own."""
    tool_choice: core.ToolChoice | None
    """Tool choice of the run, instead of the agent's own."""
    context: Context | None
    """Context of a tool call: the run is nested in the run that made the call.

    The nested run gets the outer run's auxdata and reports its events there. Its usage counts against both runs. If the
    agent has no `approve`, the outer run's `approve` is asked.
    """
    journal: Journal | None
    """Journal that records what the run is about to do.

    If the journal has the progress of an interrupted run, that run resumes: `history` is its conversation as far as it
    was saved, and there is no prompt. Calls without an entry in `results` or `approvals` are judged like new calls.
    """


def check_tool_choice(choice: core.ToolChoice, names: Collection[str]) -> None:
    """Raise CallerError if the chosen tool does not exist."""
    if isinstance(choice, core.NamedTool) and choice.name not in names:
        raise CallerError(f"no tool {choice.name!r}", path="tool_choice", hint=suggest(choice.name, names))
    if choice == "required" and not names:
        raise CallerError("there is no tool that could be called", path="tool_choice", hint="give the agent tools")


def merge_controls(controls: core.Controls, others: core.Controls | None) -> core.Controls:
    """Return the controls, with the values that `others` sets instead of their own."""
    if others is None:
        return controls
    changed = {
        name: value for name in core.Controls.__struct_fields__ if (value := getattr(others, name)) not in (None, ())
    }
    return replace(controls, **changed)


def read_history(history: Any, model: str) -> list[core.Canister]:
    """Return the canisters of a conversation.

    Args:
        history: Canisters (any iterable), or messages of Chat Completions (`{"role": "user", "content": "..."}`).
        model: Name of the model that reasoning in the messages is attributed to.

    Returns:
        The canisters, in their order.

    Raises:
        CallerError: An item is neither of them, or a message is malformed. The path names the item.
    """
    if history is None or isinstance(history, (str, bytes, Mapping)):
        kind = type(history).__name__
        raise CallerError(f"a {kind} is not a history", path="history", hint="give a list of canisters or messages")
    canisters: list[core.Canister] = []
    for place, each in enumerate(history):
        if isinstance(each, _CANISTERS):
            canisters.append(each)
        elif isinstance(each, Mapping):
            canisters += _read_message(each, f"history[{place}]", model)
        else:
            hint = 'give canisters, or messages such as {"role": "user", "content": "..."}'
            raise CallerError(f"a {type(each).__name__} is not a canister", path=f"history[{place}]", hint=hint)
    return canisters


def _read_message(message: Mapping[str, Any], path: str, model: str) -> Iterable[core.Canister]:
    from callboard.wires.chat import decode_request  # noqa: PLC0415  # only for histories of messages

    if "role" in message and not any(message.get(key) is not None for key in _SAID):
        # A message of another provider's shape would be read as an empty message.
        hint = f"a message has one of {', '.join(_SAID)}; of another provider's, make canisters"
        raise CallerError("a message without content", path=path, hint=hint)
    try:
        return decode_request({"model": model, "messages": [dict(message)]}).canisters
    except CallerError as error:
        raise CallerError(error.message, path=error.path.replace("messages[0]", path), hint=error.hint) from None
