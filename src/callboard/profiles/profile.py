"""What is known of a model and its endpoint: one fact a field. `resolution` puts the rows of profiles.toml together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import msgspec

from callboard.core import Usage

ModeName: TypeAlias = Literal["native", "structured", "validated", "parsed"]
OnRepeatedCall: TypeAlias = Literal["run", "final_answer", "warn"]
"""What follows from a call that was made before in the run (see `callboard.loop.Loop`)."""


GateKind: TypeAlias = Literal["", "grounding", "confidence"]
"""What a call is judged by before it is made (see `Profile.gate`)."""
ReasoningHistory: TypeAlias = Literal["never", "turn", "tools", "all"]
"""Which past reasoning is sent back: none, that since the user's last message, that of turns with calls, all."""
Prefill: TypeAlias = Literal["", "none", "last", "prefix", "partial", "continue"]
"""How a reply is asked for that goes on from the last message (see `Profile`)."""


Dollars: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""US dollars."""
_MILLION = 1_000_000


class Pricing(Protocol):
    """What makes the cost of a model's tokens, in US dollars."""

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """The cost of one reply at a time, None where it is unknown."""
        ...

    def is_known(self, now: dt.datetime) -> bool:
        """Whether the cost of replies is known."""
        ...


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a million tokens of a model cost, in US dollars."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """Of input that the provider had seen before; None is the price of other input."""
    cache_write: Dollars | None = None
    """Of input that the provider puts into its cache; None is the price of other input."""
    cache_write_1h: Dollars | None = None
    """Of input that it keeps for an hour; None is the price of `cache_write`."""
    date: dt.date | None = None
    """The day on which these were the prices."""

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """The cost of one reply."""
        parts = split_input(usage)
        written = _first(self.cache_write, self.input)
        prices = (self.input, _first(self.cached, self.input), written, _first(self.cache_write_1h, written))
        input_cost = sum(count * price for count, price in zip(parts, prices, strict=True))
        return (input_cost + usage.output * self.output) / _MILLION

    def is_known(self, now: dt.datetime) -> bool:
        """Whether the cost of replies is known."""
        return True


def split_input(usage: Usage) -> tuple[int, int, int, int]:
    """The input's tokens: plain ones, those read from the cache, those put into it, and those put there for an hour."""
    cached = min(usage.cached, usage.input)
    written = min(usage.cache_write, usage.input - cached)
    written_1h = min(usage.cache_write_1h, written)
    return usage.input - cached - written, cached, written - written_1h, written_1h


def format_cost(dollars: float | None) -> str:
    """The cost as people read it, with four digits behind the point; "" where it is not known."""
    return "" if dollars is None else f"${dollars:.4f}"


def describe_spent(spent: float, budget: float) -> str:
    """That a budget is spent, and by how much."""
    return f"the budget is spent: ${spent:.4g} of ${budget:.4g}"


def describe_day_spent(whose: str, spent: float, budget: float) -> str:
    """That a budget of a day is spent, by how much, and when it starts anew."""
    return f"the budget of {whose} for this day is spent: ${spent:.4g} of ${budget:.4g}; it starts anew at 00:00 UTC"


def seconds_to_next_day(now: dt.datetime) -> float:
    """How long it takes until budgets of a day start anew; `now` is in UTC."""
    midnight = (now + dt.timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds()


def _first(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts that decide how a model is asked. A default is what is assumed of a model that no row speaks of."""

    mode: Literal["", "native", "structured", "validated", "parsed"] = ""
    """How tools are offered. "" derives it: native where the endpoint `supports_tools` and the model `uses_tools`,
    else structured where the endpoint `supports_json_schema`, else validated."""
    supports_tools: bool = True
    """The endpoint has a field for tools."""
    uses_tools: bool = False
    """The model makes use of that field."""
    supports_json_schema: bool = False
    """The endpoint holds replies to a JSON Schema."""
    supports_logprobs: bool = False
    """The endpoint gives the log-probabilities of a reply's tokens."""
    dialect: str = "json"
    """How the model spells calls where the tools stand in the prompt."""
    watch: str | tuple[str, ...] = "auto"
    """The dialects that the text of replies is searched for, in native mode too: that of the model's family, and what
    it is known to write besides. "" is for models that never write calls into text, `auto` for unknown ones."""
    fenced_commands: bool = False
    """If the tools stand in the prompt, a fence `bash` in which each line begins with a tool's name is calls too."""
    gate: GateKind = ""
    """What is checked before a call is made: nothing, that its required values occur in the conversation (`grounding`),
    or also how sure the model was to call (`confidence`). A call that is stopped becomes an answer in words."""
    gate_threshold: float = 0.0
    """The score below which a call is stopped: log-odds, less 2 for each value that nobody said."""
    response_template: Mapping[str, Any] = {}
    """That of the model's own tokenizer_config.json; it replaces `dialect` and `watch`."""
    starts_in_reasoning: bool = False
    """The text begins inside reasoning, which the chat template has opened."""
    calls_in_reasoning: bool = False
    """Reasoning that the endpoint separates from the text may hold calls."""
    wire: str = "chat"
    supports_streaming: bool = True
    """False asks for replies that come whole."""
    result_format: Literal["native", "prose"] = "native"
    """"prose" writes calls and results in plain words, in place of the wire's own messages."""
    answer_after: Literal["model", "results"] = "model"
    """"results" asks for the last reply, without tools, as soon as calls have results: for models that would repeat
    their call for ever."""
    on_repeated_call: OnRepeatedCall = "run"
    """What follows from a call that was made before in the run."""
    coding: Literal["phased", "short"] = "phased"
    """"short": the coding agents give the model one phase, with few tools and with what it needs to know in the prompt."""
    merge_system_messages: bool = False
    """Instructions at the beginning become one message, later ones texts of the user's, marked as instructions."""
    supports_system_role: bool = True
    """False puts the first instructions into a text of the user's as well."""
    requires_alternating_roles: bool = False
    """Neighbours of one role become one message, and a message of the model's separates results from the user's text."""
    reasoning_history: ReasoningHistory = "all"
    """Which past reasoning is sent back to the model."""
    requires_reasoning_history: bool = False
    """The endpoint refuses a past turn with calls that has no reasoning."""
    prefill: Prefill = ""
    """How a reply is requested that continues the last message: `last` by that message's place alone, `prefix` and
    `partial` by such a field of it, `continue` by fields of the body; `none`: it is refused, "": nothing is known."""
    dummy_signature: str = ""
    """Put on a past call whose thought signature is unknown, where the endpoint refuses it without one."""
    max_tokens_field: str = "max_tokens"
    """The chat wire's field that limits a reply."""
    reasoning_field: str = "reasoning_content"
    """The chat wire's field for reasoning that is sent back; "" sends none."""
    efforts: tuple[str, ...] = ()
    """Reasoning efforts that the endpoint knows; others become the nearest. Empty: all."""
    supports_forced_calls: bool = True
    """False sends a forced `tool_choice` as `auto`, unless thinking is off: for endpoints that refuse it. It may stay
    True where it is taken and ignored, for a reply without the call is asked for once more either way."""
    supports_parallel_calls: bool = True
    """The endpoint takes `parallel_tool_calls`."""
    supports_strict: bool = True
    """The endpoint takes `strict` in a tool."""
    supports_content_parts: bool = True
    """False sends each content on the chat wire as one text, without pictures and files."""
    reports_usage: bool = True
    """The endpoint takes `stream_options`."""
    parses_special_tokens: bool = True
    """The endpoint takes a control token that is spelled in a text for the token itself: such tokens are escaped."""
    control_tokens: str | tuple[str, ...] = "all"
    """The rows of control_tokens.toml that are escaped; `all`: those of every family."""
    context_tokens: int = 0
    """Tokens that the model can read, 0 if unknown."""
    max_tools: int = 0
    """Tools that a request may declare, 0 for any number."""
    base_url: str = ""
    url_variable: str = ""
    """The environment variable of another URL."""
    key_variable: str = ""
    """The environment variable of the API key."""
    temperature: float | None = None
    """For requests that set none, as `max_tokens` (of a reply)."""
    max_tokens: int | None = None
    prices: Prices | None = None
    """None: those that genai-prices lists for the endpoint's address (see `prices`)."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The dialects of `watch`, none for none."""
        names = (self.watch,) if isinstance(self.watch, str) else self.watch
        return tuple([name for name in names if name])
