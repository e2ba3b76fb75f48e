"""What a backend does by itself: one row a question, with what is sent, how the replies are read, and what follows.

Each request has an answer that nobody gives by chance: a word that no model says to the question, the end of a word
that another message begins, a number of tokens. They are short, for a large model on a small machine reads a hundred
tokens a second. The rows stand in the order of their worth, for the time may not suffice for all.

Laws: a fact follows from what came back, never from a status alone: a backend that takes a field and ignores it does
not have the feature. Where the replies leave it open, no fact follows. Every fact has the sentence that `explain`
shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from callboard.core import InvocationEnded, TextPiece, ToolDeclaration
from callboard.dialects import DIALECTS, Parser, get_dialect
from callboard.profiles import Profile
from callboard.profiles.control_tokens import token_table
from callboard.providers.backend_info import BackendInfo
from callboard.servers.gateway.doctor.probes import MOST_TOKENS, NAMED, TOOL, Body, State, user
from callboard.servers.gateway.doctor.raw_backend import RawReply
from callboard.text.display import collapse
from callboard.wires.chat.encode_messages import CHAT_PREFILLS

_WORDS_TOKENS: Final = 16
_THOUGHT_TOKENS: Final = 256
"""For models that think before they say a word."""
WORD: Final = "quokka"
"""That nobody answers to `_CAPITAL`."""
_CAPITAL: Final = user("What is the capital of France? Answer with its name only.")
_READY: Final = user("Say: ready")
COPIES: Final = 8
"""Of a control token in one message."""
GROWTH: Final = 20
"""Tokens that `_LONG` has at the least, in any tokenizer."""
_SHORT: Final = "Be brief."
_LONG: Final = (
    "You work for a harbour master who writes every evening which ships have come, what they carry, where they lie, "
    "and which of them leave with the tide; he wants short answers, plain words and no numbers that nobody can check."
)
TOO_MANY_TOKENS: Final = 99_999_999
"""More than any model reads; a server that counts says so without reading anything."""


def ask(*messages: Body, most: int, **fields: Any) -> Body:
    return {"messages": list(messages), "max_tokens": most, **fields}


def _system(text: str) -> Body:
    return {"role": "system", "content": text}


def _assistant(text: str) -> Body:
    return {"role": "assistant", "content": text}


CONTROL = ask(_READY, most=1)
"""That every backend answers."""
CONTEXT = (ask(_READY, most=TOO_MANY_TOKENS, stop=["ready", "\n"]),)
CALLS = (ask(user("What is in the file notes.txt? Use the tool."), most=MOST_TOKENS, tools=[TOOL], tool_choice="auto"),)
FORCED = (
    ask(user("Good morning."), most=_THOUGHT_TOKENS, tools=[TOOL], tool_choice="required"),
    ask(user("Good morning."), most=_THOUGHT_TOKENS, tools=[TOOL], tool_choice=NAMED),
)
_SCHEMA: Body = {
    "type": "object",
    "properties": {"animal": {"type": "string", "enum": [WORD]}},
    "required": ["animal"],
    "additionalProperties": False,
}
SCHEMA = (
    ask(
        _CAPITAL,
        most=_THOUGHT_TOKENS,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": _SCHEMA}},
    ),
)
LOGPROBS = (ask(_CAPITAL, most=1, logprobs=True, top_logprobs=5),)
BEGINNING: Final = 'The harbour master says {"capital": "Par'
"""With which no new message begins."""
CONTINUED: Final = 'is"'
"""What goes on from it; no new message begins so either."""
PREFILL = tuple(
    [
        ask(
            user('What is the capital of France? Answer as {"capital": NAME}.'),
            {**_assistant(BEGINNING), **message},
            most=_WORDS_TOKENS,
            **fields,
        )
        for message, fields in CHAT_PREFILLS.values()
    ]
)
SYSTEMS = (
    ask(_system(_SHORT), _READY, most=1),
    ask(_system(_SHORT), user(_LONG), most=1),  # shows whether tokens are counted truly
    ask(_system(_LONG), _READY, most=1),
    ask(_system(_SHORT), _system(_LONG), _READY, most=1),
    ask(_system(_SHORT), _READY, _assistant("ready"), _READY, most=1),
    ask(_system(_SHORT), _READY, _assistant("ready"), _system(_LONG), _READY, most=1),
)


class Subject(msgspec.Struct, frozen=True):
    """What is known before anything is asked: `profile` is without what the user's own file says."""

    profile: Profile
    info: BackendInfo = BackendInfo()


class Conclusion(msgspec.Struct, frozen=True):
    """`detail` is the line of the report and the evidence of the facts."""

    state: State
    detail: str = ""
    facts: Mapping[str, Any] = {}


Reader: TypeAlias = Callable[[Sequence[RawReply], Subject], Conclusion]
BodyMaker: TypeAlias = Callable[[Subject], Sequence[Body]]


class RawCheck(msgspec.Struct, frozen=True):
    """One row. The replies to all `bodies` are read together; with `stops` no further body is sent once they say yes.

    `facts` are all that can follow.
    """

    name: str
    bodies: Sequence[Body] | BodyMaker
    read: Reader
    facts: tuple[str, ...]
    stops: bool = False

    def requests(self, subject: Subject) -> Sequence[Body]:
        return self.bodies(subject) if callable(self.bodies) else self.bodies


# How much it reads.

_COUNT: Final = (
    r"(\d{1,3}(?:[,.'\u2019_ \u00a0\u2009\u202f]\d{2,3})*[,.'\u2019_ \u00a0\u2009\u202f]\d{3}|\d{3,9})(?![\dkKmM])"
)
"""A number, with whatever separates its thousands."""
_CONTEXT_WORDS: Final = re.compile(
    rf"(?:context (?:length|window|size)|max_model_len|n_ctx)[^\d]{{0,40}}?(?<!\d){_COUNT}"
    rf"|(?<![\d,.]){_COUNT}(?=[^\d:]{{0,12}}context)",
    re.IGNORECASE,
)


def _read_context(replies: Sequence[RawReply], subject: Subject) -> Conclusion:
    info = subject.info
    if info.context_tokens:
        detail = f"{info.context_tokens} tokens, by {info.context_source}"
        return Conclusion("yes", detail, {"context_tokens": info.context_tokens})
    numbers = [match[1] or match[2] for match in _CONTEXT_WORDS.finditer(replies[0].refusal)]
    counts = [int("".join(filter(str.isdecimal, each))) for each in numbers]
    # A refusal repeats what was asked for as well.
    tokens = next((count for count in counts if count < TOO_MANY_TOKENS), 0)
    if not tokens:
        return Conclusion("partly", "the backend does not say it")
    return Conclusion("yes", f"{tokens} tokens, by the refusal of a longer reply", {"context_tokens": tokens})


# Calls.

_FUNCTION: Final = TOOL["function"]
_TOOLS: Final = (ToolDeclaration(_FUNCTION["name"], _FUNCTION["description"], _FUNCTION["parameters"]),)
_TOOL_WORDS: Final = re.compile(r"\btool|\bfunction", re.IGNORECASE)


def _read_calls(replies: Sequence[RawReply], subject: Subject) -> Conclusion:
    reply = replies[0]
    if _FUNCTION["name"] in reply.calls:
        facts = {"supports_tools": True, "uses_tools": True}
        return Conclusion("yes", "a call came in the wire's own field", facts)
    if reply.refusal and _TOOL_WORDS.search(reply.refusal):
        return Conclusion("no", f"tools are refused: {reply.refusal}", {"supports_tools": False})
    if reply.fault:
        return Conclusion("no", reply.fault)
    texts = {name: len(text) for name in DIALECTS if (text := _text_beside_calls(reply.text, name)) is not None}
    # The dialect that leaves the least text has read the markers around the call, too.
    dialect = min((name for name in texts if name not in _GENERIC), key=lambda name: texts[name], default="")
    if dialect:
        detail = f"the call stood in the text, in the dialect {dialect}: {collapse(reply.text, 80)}"
        is_watched = not texts.keys().isdisjoint(subject.profile.watched)
        return Conclusion("partly", detail, {"uses_tools": True, **({} if is_watched else {"watch": dialect})})
    return Conclusion("partly", "the model did not call")


_GENERIC: Final = frozenset({"auto", "action"})
"""Dialects that no model is taught: all of them at once, and that of the structured mode."""


def _text_beside_calls(text: str, dialect: str) -> str | None:
    """The text that the dialect leaves beside its calls; None if it finds no call."""
    parser = Parser(_TOOLS, get_dialect(dialect))
    events = [*parser.feed(text), *parser.finish()]
    if not any(isinstance(each, InvocationEnded) and each.arguments is not None for each in events):
        return None
    return "".join([each.text for each in events if isinstance(each, TextPiece)])


def _read_forced(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    kinds = ("required", "a named tool")
    forced = [kind for kind, reply in zip(kinds, replies, strict=True) if reply.calls]
    if len(forced) == len(kinds):
        return Conclusion("yes", "a greeting was answered with a call", {"supports_forced_calls": True})
    others = [
        f"{kind} is refused: {reply.refusal}" if reply.refusal else reply.open_reason or f"{kind} is taken and ignored"
        for kind, reply in zip(kinds, replies, strict=True)
        if not reply.calls
    ]
    detail = "; ".join(others)
    if forced or any(reply.open_reason for reply in replies):
        return Conclusion("partly", detail)
    return Conclusion("no", detail, {"supports_forced_calls": False})


# Constraints.


def _read_schema(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    reply = replies[0]
    if reply.refusal:
        return Conclusion("no", f"refused: {reply.refusal}", {"supports_json_schema": False})
    if reply.open_reason:
        return Conclusion("no", reply.open_reason)
    try:
        held = json.loads(reply.text) == {"animal": WORD}
    except (ValueError, RecursionError):
        held = False
    if held:
        return Conclusion("yes", "a schema was held against the question", {"supports_json_schema": True})
    return Conclusion("no", f"taken and ignored: {collapse(reply.text, 60)!r} came", {"supports_json_schema": False})


def _read_logprobs(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    plain = replies[0]
    if plain.refusal:
        return Conclusion("no", f"refused: {plain.refusal}", {"supports_logprobs": False})
    if plain.fault:
        return Conclusion("no", plain.fault)
    if not plain.first_tokens:
        return Conclusion("no", "taken and ignored", {"supports_logprobs": False})
    return Conclusion("yes", f"{len(plain.first_tokens)} of 5 came for the first token", {"supports_logprobs": True})


# What a conversation may hold.


def _read_prefill(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    faults = []
    for way, reply in zip(CHAT_PREFILLS, replies, strict=False):
        text = reply.text.lstrip()
        if text.startswith(CONTINUED):
            return Conclusion("yes", f"the reply went on in the middle of a word ({way})", {"prefill": way})
        if text.startswith(BEGINNING + CONTINUED):
            # No fact: it does go on, but a client would get its own beginning twice.
            return Conclusion("partly", f"the reply went on, and repeated the beginning before it ({way})")
        faults.append(f"{way}: {reply.refusal or reply.open_reason or 'taken and ignored'}")
    unknown = any(reply.open_reason for reply in replies)
    return Conclusion("no", "; ".join(faults), {} if unknown else {"prefill": "none"})


_SYSTEM_FACTS: Final = ("supports_system_role", "merge_system_messages")


def _read_systems(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    short, counted, long, second, plain, late = replies
    counts = _arrives(short, counted) == (True, "")
    alone = _arrives(short, long, counts=counts)
    if alone is not None and not alone[0]:
        return Conclusion("no", f"a system message {alone[1]}", {"supports_system_role": False})
    outcomes = {
        "a second system message": _arrives(short, second, counts=counts),
        "a later one": _arrives(plain, late, counts=counts),
    }
    dropped = [f"{what} {outcome[1]}" for what, outcome in outcomes.items() if outcome is not None and not outcome[0]]
    if dropped:
        return Conclusion("no", "; ".join(dropped), {"merge_system_messages": True})
    if alone is None or None in outcomes.values():
        return Conclusion("partly", "they are taken; whether they arrive is open, for no tokens are counted")
    facts = {"supports_system_role": True, "merge_system_messages": False}
    return Conclusion("yes", "a second and a later one arrive", facts)


def _arrives(without: RawReply, reply: RawReply, *, counts: bool = True) -> tuple[bool, str] | None:
    """Whether what `reply`'s request has more than the other's arrives at the model, and what shows that it does not.

    None where that is open: nothing is counted, or another fault came.
    """
    if reply.refusal:
        return False, f"is refused: {reply.refusal}"
    fewer, tokens = without.prompt_tokens, reply.prompt_tokens
    if reply.fault or fewer is None or tokens is None or not counts:
        return None
    if tokens - fewer >= GROWTH:
        return True, ""
    return False, f"is taken and dropped ({fewer} tokens without it, {tokens} with it)"


_ALL_FAMILIES: Final = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<|end|>", "<｜end▁of▁sentence｜>")
"""What ends a turn in the templates of the largest families."""
_MAX_TOKENS: Final = 3
_ONE_TOKEN: Final = 1.6
"""Tokens that a copy has at the most where it is read as the control token; spelled it has three or more."""


def _candidates(subject: Subject) -> tuple[str, ...]:
    """The control tokens that are tried: the family's, or those of the template, or those of every large family."""
    names = subject.profile.control_tokens
    names = (names,) if isinstance(names, str) else names
    table = token_table()
    family = [token for name in names if name in table for token in table[name]["turns"] if "{n}" not in token]
    template = subject.info.chat_template
    in_template = [token for token in family or _ALL_FAMILIES if token in template]
    return tuple(in_template or family or _ALL_FAMILIES)[: _MAX_TOKENS if family or in_template else None]


def _read_control_tokens(replies: Sequence[RawReply], subject: Subject) -> Conclusion:
    base, *others = [reply.prompt_tokens or 0 for reply in replies]
    counts = {token: (tokens - base) / COPIES for token, tokens in zip(_candidates(subject), others, strict=True)}
    if not base or any(count <= 0 for count in counts.values()):
        return Conclusion("partly", "open: no tokens are counted")
    for token, count in counts.items():
        if count <= _ONE_TOKEN:
            detail = f"{token} in a message is one token: such tokens are escaped"
            return Conclusion("partly", detail, {"parses_special_tokens": True})
    # Of a model whose family is not known, another token may be one.
    facts = {} if subject.profile.control_tokens == "all" else {"parses_special_tokens": False}
    return Conclusion("yes", f"{', '.join(counts)} in a message are several tokens each", facts)


RAW_CHECKS: Final[tuple[RawCheck, ...]] = (
    RawCheck("calls", CALLS, _read_calls, ("supports_tools", "uses_tools", "watch")),
    RawCheck("schema held", SCHEMA, _read_schema, ("supports_json_schema",)),
    RawCheck("log-probabilities", LOGPROBS, _read_logprobs, ("supports_logprobs",)),
    RawCheck("forced calls", FORCED, _read_forced, ("supports_forced_calls",)),
    RawCheck(
        "context length",
        lambda subject: () if subject.info.context_tokens else CONTEXT,
        _read_context,
        ("context_tokens",),
    ),
    RawCheck("system messages arrive", SYSTEMS, _read_systems, _SYSTEM_FACTS),
    RawCheck(
        "control tokens as text",
        # A message without any, and one with several copies of each.
        lambda subject: [ask(user(f"Say: ready {token * COPIES}"), most=1) for token in ("", *_candidates(subject))],
        _read_control_tokens,
        ("parses_special_tokens",),
    ),
    RawCheck("prefill", PREFILL, _read_prefill, ("prefill",), stops=True),
)
