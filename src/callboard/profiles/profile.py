"""Facts about a model and its endpoint, one per field. `resolution` combines the rows of profiles.toml."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import msgspec

from callboard.core import Usage

ModeName: TypeAlias = Literal["native", "structured", "validated", "parsed"]
OnRepeatedCall: TypeAlias = Literal["run", "final_answer", "warn"]
"""Treatment of calls that repeat an earlier call of the run (see `callboard.loop.Loop`)."""


GateKind: TypeAlias = Literal["", "grounding", "confidence"]
"""How a call is judged before it runs (see `Profile.gate`)."""
ReasoningHistory: TypeAlias = Literal["never", "turn", "tools", "all"]
"""Past reasoning to send back: none, since the user's last message, in turns with calls, or all."""
Prefill: TypeAlias = Literal["", "none", "last", "prefix", "partial", "continue"]
"""How to request a reply that continues the last message (see `Profile`)."""


Dollars: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""An amount of US dollars."""
_MILLION = 1_000_000


class Pricing(Protocol):
    """The prices of a model's tokens, in US dollars."""

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """Return the cost of the `usage` of one reply at the time `now`, or None if it is unknown."""
        ...

    def is_known(self, now: dt.datetime) -> bool:
        """Return whether the cost of replies at the time `now` is known."""
        ...


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prices of a million tokens of a model, in US dollars: of its `input` and `output`."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """Price of input that the provider has cached; None means the price of other input."""
    cache_write: Dollars | None = None
    """Price of input that the provider writes to its cache; None means the price of other input."""
    cache_write_1h: Dollars | None = None
    """Price of input that is cached for an hour; None means the price of `cache_write`."""
    date: dt.date | None = None
    """The day of these prices."""

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """Return the cost of the `usage` of one reply. `now` is not needed, because these prices have no times."""
        parts = split_input(usage)
        written = _first(self.cache_write, self.input)
        prices = (self.input, _first(self.cached, self.input), written, _first(self.cache_write_1h, written))
        input_cost = sum(count * price for count, price in zip(parts, prices, strict=True))
        return (input_cost + usage.output * self.output) / _MILLION

    def is_known(self, now: dt.datetime) -> bool:
        """Return whether the cost of replies at the time `now` is known."""
        return True


def split_input(usage: Usage) -> tuple[int, int, int, int]:
    """Return the numbers of input tokens: plain, read from the cache, written to it, and written for an hour."""
    cached = min(usage.cached, usage.input)
    written = min(usage.cache_write, usage.input - cached)
    written_1h = min(usage.cache_write_1h, written)
    return usage.input - cached - written, cached, written - written_1h, written_1h


def format_cost(dollars: float | None) -> str:
    """Return the `dollars` for people, with four digits after the point; "" if the cost is unknown."""
    return "" if dollars is None else f"${dollars:.4f}"


def describe_spent(spent: float, budget: float) -> str:
    """Return a sentence: the `budget` is spent, with the dollars `spent`."""
    return f"the budget is spent: ${spent:.4g} of ${budget:.4g}"


def describe_day_spent(whose: str, spent: float, budget: float) -> str:
    """Return a sentence: the daily `budget` of `whose` is spent, with the dollars `spent` and the time of its reset."""
    return f"the budget of {whose} for this day is spent: ${spent:.4g} of ${budget:.4g}; it starts again at 00:00 UTC"


def seconds_to_next_day(now: dt.datetime) -> float:
    """Return the seconds until daily budgets start again; `now` is in UTC."""
    midnight = (now + dt.timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds()


def _first(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts that decide how a model is asked. The defaults apply to a model without any row.

    `wire` is the API format and `base_url` the endpoint. `max_tokens` limits replies whose requests set no limit.
    """

    mode: Literal["", "native", "structured", "validated", "parsed"] = ""
    """How tools are offered. "" chooses native if the endpoint `supports_tools` and the model `uses_tools`, otherwise
    structured if the endpoint `supports_json_schema`, otherwise validated."""
    supports_tools: bool = True
    """True if the endpoint has a field for tools."""
    uses_tools: bool = False
    """True if the model makes use of that field."""
    supports_json_schema: bool = False
    """True if the endpoint constrains replies to a JSON Schema."""
    supports_logprobs: bool = False
    """True if the endpoint returns the log-probabilities of a reply's tokens."""
    dialect: str = "json"
    """Dialect in which the model writes calls if the tools are in the prompt."""
    watch: str | tuple[str, ...] = "auto"
    """Dialects to look for in the text of replies, also in native mode: the dialect of the model's family, and others
    that it sometimes uses. "" is for models that never write calls into text, `auto` for unknown models."""
    fenced_commands: bool = False
    """True if a fence `bash` counts as calls when tools are in the prompt and each line begins with a tool's name."""
    gate: GateKind = ""
    """Check before a call runs: none, that its required values occur in the conversation (`grounding`), or also that
    the model was sure to call (`confidence`). A stopped call is replaced by an answer in words."""
    gate_threshold: float = 0.0
    """Score below which a call is stopped, in log-odds, less 2 for each value that nobody said."""
    response_template: Mapping[str, Any] = {}
    """The `response_template` of the model's own tokenizer_config.json; it replaces `dialect` and `watch`."""
    starts_in_reasoning: bool = False
    """True if the text begins inside reasoning, because the chat template has opened it."""
    calls_in_reasoning: bool = False
    """True if calls may occur in reasoning that the endpoint separates from the text."""
    wire: str = "chat"
    supports_streaming: bool = True
    """False requests whole replies."""
    result_format: Literal["native", "prose"] = "native"
    """With "prose", calls and results are written in plain words instead of the wire's own messages."""
    answer_after: Literal["model", "results"] = "model"
    """With "results", the last reply is requested, without tools, as soon as calls have results: for models that would
    repeat their call forever."""
    on_repeated_call: OnRepeatedCall = "run"
    """Treatment of calls that repeat an earlier call of the run."""
    coding: Literal["phased", "short"] = "phased"
    """With "short", coding agents run in one phase, with few tools and all necessary facts in the prompt."""
    merge_system_messages: bool = False
    """True if leading instructions become one message, and later instructions become marked texts of the user."""
    supports_system_role: bool = True
    """False puts the first instructions into a user message too."""
    requires_alternating_roles: bool = False
    """True merges adjacent user messages, puts one first, and puts a model's message between results and the next."""
    reasoning_history: ReasoningHistory = "all"
    """Past reasoning to send back to the model."""
    requires_reasoning_history: bool = False
    """True if the endpoint rejects past turns with calls but without reasoning."""
    prefill: Prefill = ""
    """How to request a reply that continues the last message: `last` by that message's position alone, `prefix` and
    `partial` by a field of the message, `continue` by fields of the body. `none` means refused, "" unknown."""
    dummy_signature: str = ""
    """Thought signature for past calls without a known one, if the endpoint rejects calls without it."""
    max_tokens_field: str = "max_tokens"
    """The chat wire's field for the maximum length of a reply."""
    reasoning_field: str = "reasoning_content"
    """The chat wire's field for past reasoning; "" sends none."""
    efforts: tuple[str, ...] = ()
    """Reasoning efforts that the endpoint supports; others become the nearest. Empty: all."""
    effort_field: str = "reasoning_effort"
    """The chat wire's field for the effort, such as `reasoning.effort`; "" sends none."""
    thinking_on: Mapping[str, Any] = {}
    """Fields of a chat body that turn thinking on, in addition to the effort. `$budget` is the effort in tokens."""
    thinking_off: Mapping[str, Any] = {}
    """Fields of a chat body that turn thinking off."""
    thinking_words: tuple[str, ...] = ()
    """Two texts, for the instructions of a model whose template has no such fields: for thinking on, and off."""
    thinks: bool = False
    """True if the model thinks unless a request turns that off."""
    supports_forced_calls: bool = True
    """False sends a forced `tool_choice` as `auto` unless thinking is off, for endpoints that reject it. True also
    suits endpoints that ignore it, because a reply without the call is requested once more in both cases."""
    supports_parallel_calls: bool = True
    """True if the endpoint accepts `parallel_tool_calls`."""
    supports_strict: bool = True
    """True if the endpoint accepts `strict` in a tool."""
    supports_content_parts: bool = True
    """False sends each content on the chat wire as one text, without pictures and files."""
    reports_usage: bool = True
    """True if the endpoint accepts `stream_options`."""
    parses_special_tokens: bool = True
    """True if the endpoint reads a control token in a text as the token itself, so that such tokens are escaped."""
    control_tokens: str | tuple[str, ...] = "all"
    """Rows of control_tokens.toml to escape; `all` for every family."""
    context_tokens: int = 0
    """Maximum tokens that the model can read; 0 if unknown. A local model with 0 reads as much as memory allows."""
    cache_type: Literal["f16", "q8_0"] = "f16"
    """Type of a local model's cache. q8_0 takes 47 % less memory; replies may differ."""
    saves_prompts: bool = True
    """True if instructions and tools of a local model's long prompts are saved on disk, for later processes."""
    max_tools: int = 0
    """Maximum tools in a request; 0 for any number."""
    base_url: str = ""
    url_variable: str = ""
    """Environment variable with another URL."""
    key_variable: str = ""
    """Environment variable with the API key."""
    temperature: float | None = None
    """Temperature of requests that set none. `max_tokens` is the same for the length of a reply."""
    max_tokens: int | None = None
    effort: str | None = None
    """Reasoning effort of requests that set none."""
    prices: Prices | None = None
    """Prices of tokens; None uses the list of genai-prices for the endpoint's address (see `prices`)."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The dialects of `watch`; empty if there are none."""
        names = (self.watch,) if isinstance(self.watch, str) else self.watch
        return tuple([name for name in names if name])
