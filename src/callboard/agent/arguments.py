"""Check and read what an agent is given.

A misspelled word, or a thing of the wrong kind, is refused at once and by the name of its parameter: taken without a
word it would act as the default, or fail in the middle of a run. A history may be written as canisters or as the
messages of Chat Completions; whatever else stands in it is refused, since a conversation without a part of what was
said in it is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
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
"""Parameters that are one of a few words."""
_SAID: Final = ("content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning")
"""Where a message of Chat Completions says something."""


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
"""Parameters that are of a kind, and what they should be."""


def check_arguments(**arguments: Any) -> None:
    """Refuse what an agent or a run cannot be made of; None stands for a default.

    Args:
        arguments: The arguments by their names.

    Raises:
        CallerError: An argument is no word that its parameter knows, or of another kind.
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
            raise CallerError(f"{value!r} is no word for it", path=name, hint=hint)
        if name in _KINDS:
            fits, kind = _KINDS[name]
            if not fits(value):
                raise CallerError(f"a {type(value).__name__} cannot be it", path=name, hint=f"give {kind}")


@dataclass(kw_only=True)
class AgentSettings:
    """What stays the same from run to run, besides an agent's model, tools and type of output."""

    instructions: Instructions = ""
    """A text, or a function of the run's context that gives it; it becomes the supervisor's canister."""
    controls: core.Controls | None = None
    """How replies are sampled, and how long they may be."""
    tool_choice: core.ToolChoice = "auto"
    """Whether the model has to call, and which tool; it holds until the model has called."""
    limits: Limits | None = None
    """The bounds of each run."""
    on_repeated_call: OnRepeatedCall | None = None
    """What follows from a call that was made before in the run, in the place of what the model's profile says.

    "run" runs it again. "warn" does not if nothing has changed since: the model gets the earlier result below the
    advice to do something else. "final_answer" gives the earlier result to a call that is idempotent or was made in the
    round before, and asks for the last reply if the whole reply was such calls.
    """
    answer_after: AnswerAfter | None = None
    """When the last reply is asked for, in the place of what the model's profile says."""
    context_window: ContextWindow | None = None
    """Decides what of a long conversation the model is shown."""
    event_filter: NewEventFilter | None = None
    """Makes a Stage that a reply's events pass through before anything else sees them."""
    policy: Policy | None = None
    """Which calls run, which are denied, and which `approve` is asked about."""
    approve: Approve | None = None
    """Asked about calls: only "allow" (or True) runs one. Without it the answer is no."""
    quoted_calls: QuotedCalls = "ask"
    """Whether `approve` is asked about a call that stands word for word in what the model read."""
    before_call: BeforeCall | None = None
    """Looks at each call before it runs."""
    after_call: AfterCall | None = None
    """Looks at each result."""
    max_parallel_calls: int = DEFAULT_LIMIT
    """Calls of a reply that are under way together; with 1 they run in their order."""
    on_error: OnError = "feedback"
    """With "fail_fast" a tool that raises ends the run, and the conversation is rolled back."""
    auxdata: Mapping[str, Any] | None = None
    """What tools find in their Context."""
    store: Store | None = None
    """Keeps every canister."""
    clock: Clock = lambda: datetime.now(UTC)  # the default of a field
    """The time in UTC."""


class RunOptions(TypedDict, total=False):
    """What a run may be given besides its prompt."""

    history: Iterable[core.Canister | Mapping[str, Any]]
    """The canisters of a conversation that goes on, or its messages as Chat Completions has them."""
    results: Mapping[str, Any] | None
    """Results of calls of the history that wait, by their identifiers: a tool's value, or a ToolError."""
    approvals: Mapping[str, Answer] | None
    """Decisions about calls that wait, by their identifiers: what `approve` would have answered."""
    auxdata: Mapping[str, Any] | None
    """Added to the agent's own."""
    approve: Approve | None
    """Asked in the place of the agent's own callback."""
    model: Model | str | None
    """Asked in the place of the agent's own."""
    instructions: Instructions | None
    """In the place of the agent's own, and of those of the history."""
    limits: Limits | None
    """In the place of the agent's own."""
    controls: core.Controls | None
    """What is set in them takes the place of the agent's own."""
    tool_choice: core.ToolChoice | None
    """In the place of the agent's own."""
    context: Context | None
    """The context of a tool: the run is one within the run that called it.

    The run gets its auxdata, its events are told there, what it takes counts there, and `approve` of that run is asked
    if the agent has none.
    """
    journal: Journal | None
    """Where the run writes down what it is about to do.

    With one that has the progress of an interrupted run, that run goes on: `history` is its conversation as far as it
    was saved, and there is no prompt. Calls that neither `results` nor `approvals` name are judged as those of a fresh
    reply.
    """


def check_tool_choice(choice: core.ToolChoice, names: Collection[str]) -> None:
    """Refuse the choice of a tool that is not there. Raises CallerError."""
    if isinstance(choice, core.NamedTool) and choice.name not in names:
        raise CallerError(f"no tool {choice.name!r}", path="tool_choice", hint=suggest(choice.name, names))
    if choice == "required" and not names:
        raise CallerError("there is no tool that could be called", path="tool_choice", hint="give the agent tools")


def merge_controls(controls: core.Controls, others: core.Controls | None) -> core.Controls:
    """The controls, with what is set in the others in its place."""
    if others is None:
        return controls
    changed = {
        name: value for name in core.Controls.__struct_fields__ if (value := getattr(others, name)) not in (None, ())
    }
    return replace(controls, **changed)


def read_history(history: Any, model: str) -> list[core.Canister]:
    """The canisters of a conversation.

    Args:
        history: Canisters (an iterable of them), or messages as Chat Completions has them (`{"role": "user", "content": "..."}`).
        model: The name of the model that reasoning in the messages is taken to be of.

    Returns:
        The canisters, in their order.

    Raises:
        CallerError: Something in it is neither, or a message is malformed; the path says where.
    """
    if history is None or isinstance(history, (str, bytes, Mapping)):
        kind = type(history).__name__
        raise CallerError(f"a {kind} is no history", path="history", hint="give a list of canisters or messages")
    canisters: list[core.Canister] = []
    for place, each in enumerate(history):
        if isinstance(each, _CANISTERS):
            canisters.append(each)
        elif isinstance(each, Mapping):
            canisters += _read_message(each, f"history[{place}]", model)
        else:
            hint = 'give canisters, or messages such as {"role": "user", "content": "..."}'
            raise CallerError(f"a {type(each).__name__} is no canister", path=f"history[{place}]", hint=hint)
    return canisters


def _read_message(message: Mapping[str, Any], path: str, model: str) -> Iterable[core.Canister]:
    from callboard.wires.chat import decode_request  # noqa: PLC0415  # where somebody writes messages

    if "role" in message and not any(message.get(key) is not None for key in _SAID):
        # Another provider's shape would be read as one that says nothing.
        hint = f"a message has one of {', '.join(_SAID)}; of another provider's, make canisters"
        raise CallerError("a message without content", path=path, hint=hint)
    try:
        return decode_request({"model": model, "messages": [dict(message)]}).canisters
    except CallerError as error:
        raise CallerError(error.message, path=error.path.replace("messages[0]", path), hint=error.hint) from None
