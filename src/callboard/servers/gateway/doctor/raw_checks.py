"""Checks of a backend without the gateway. One row is one check: its requests, and a function that reads the replies.

Each request has an answer that does not come by chance: a word that no model says to the question, the end of a word
that another message begins, a number of tokens. Requests are short, because a large model on a small machine reads a
hundred tokens a second. The most valuable rows come first, because the time may not be enough for all.

Laws: a fact follows from the content of a reply, never from a status alone. A backend that accepts a field and ignores
it does not have the feature. If the replies are unclear, no fact follows. Every fact has a sentence of evidence for
`explain`.
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
"""Maximum tokens of a reply from models that may reason first."""
WORD: Final = "quokka"
"""A word that no model answers to `_CAPITAL`."""
_CAPITAL: Final = user("What is the capital of France? Answer with its name only.")
_READY: Final = user("Say: ready")
COPIES: Final = 8
"""Number of copies of a control token in one message."""
GROWTH: Final = 20
"""Minimum number of tokens of `_LONG`, in any tokenizer."""
_SHORT: Final = "Be brief."
_LONG: Final = (
    "You work for a harbour master who writes every evening which ships have come, what they carry, where they lie, "
    "and which of them leave with the tide; he wants short answers, plain words and no numbers that nobody can check."
)
TOO_MANY_TOKENS: Final = 99_999_999
"""More tokens than any model reads. A server that checks the limit refuses without reading anything."""


def ask(*messages: Body, most: int, **fields: Any) -> Body:
    return {"messages": list(messages), "max_tokens": most, **fields}


def _system(text: str) -> Body:
    return {"role": "system", "content": text}


def _assistant(text: str) -> Body:
    return {"role": "assistant", "content": text}


CONTROL = ask(_READY, most=1)
"""A request that every backend answers."""
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
"""The beginning of a message. No new message begins like this."""
CONTINUED: Final = 'is"'
"""The continuation of `BEGINNING`. No new message begins like this either."""
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
    ask(_system(_SHORT), user(_LONG), most=1),  # shows whether the token counts are right
    ask(_system(_LONG), _READY, most=1),
    ask(_system(_SHORT), _system(_LONG), _READY, most=1),
    ask(_system(_SHORT), _READY, _assistant("ready"), _READY, most=1),
    ask(_system(_SHORT), _READY, _assistant("ready"), _system(_LONG), _READY, most=1),
)


class Subject(msgspec.Struct, frozen=True):
    """Facts known before the checks. `profile` does not include the user's own file."""

    profile: Profile
    info: BackendInfo = BackendInfo()


class Conclusion(msgspec.Struct, frozen=True):
    """The result of a check. `detail` is the line in the report, and the evidence of the facts."""

    state: State
    detail: str = ""
    facts: Mapping[str, Any] = {}


Reader: TypeAlias = Callable[[Sequence[RawReply], Subject], Conclusion]
BodyMaker: TypeAlias = Callable[[Subject], Sequence[Body]]


class RawCheck(msgspec.Struct, frozen=True):
    """One check. The replies to all `bodies` are read together. If `stops`, the first "yes" skips the remaining bodies.

    `facts` are the names of all facts that can follow.
    """

    name: str
    bodies: Sequence[Body] | BodyMaker
    read: Reader
    facts: tuple[str, ...]
    stops: bool = False

    def requests(self, subject: Subject) -> Sequence[Body]:
        return self.bodies(subject) if callable(self.bodies) else self.bodies


# Context length.

_COUNT: Final = (
    r"(\d{1,3}(?:[,.'\u2019_ \u00a0\u2009\u202f]\d{2,3})*[,.'\u2019_ \u00a0\u2009\u202f]\d{3}|\d{3,9})(?![\dkKmM])"
)
"""A number with any separator of thousands."""
_CONTEXT_WORDS: Final = re.compile(
    rf"(?:context (?:length|window|size)|max_model_len|n_ctx)[^\d]{{0,40}}?(?<!\d){_COUNT}"
    rf"|(?<![\d,.]){_COUNT}(?=[^\d:]{{0,12}}context)",
    re.IGNORECASE,
)


def _read_context(replies: Sequence[RawReply], subject: Subject) -> Conclusion:
    info = subject.info
    if info.context_tokens:
        detail = f"{info.context_tokens} tokens, from {info.context_source}"
        return Conclusion("yes", detail, {"context_tokens": info.context_tokens})
    numbers = [match[1] or match[2] for match in _CONTEXT_WORDS.finditer(replies[0].refusal)]
    counts = [int("".join(filter(str.isdecimal, each))) for each in numbers]
    # A refusal also repeats the requested number.
    tokens = next((count for count in counts if count < TOO_MANY_TOKENS), 0)
    if not tokens:
        return Conclusion("partly", "the backend does not report it")
    return Conclusion("yes", f"{tokens} tokens, from the refusal of a longer reply", {"context_tokens": tokens})


# Calls.

_FUNCTION: Final = TOOL["function"]
_TOOLS: Final = (ToolDeclaration(_FUNCTION["name"], _FUNCTION["description"], _FUNCTION["parameters"]),)
_TOOL_WORDS: Final = re.compile(r"\btool|\bfunction", re.IGNORECASE)


def _read_calls(replies: Sequence[RawReply], subject: Subject) -> Conclusion:
    reply = replies[0]
    if _FUNCTION["name"] in reply.calls:
        facts = {"supports_tools": True, "uses_tools": True}
        return Conclusion("yes", "a call arrived in the wire's own field", facts)
    if reply.refusal and _TOOL_WORDS.search(reply.refusal):
        return Conclusion("no", f"tools are refused: {reply.refusal}", {"supports_tools": False})
    if reply.fault:
        return Conclusion("no", reply.fault)
    texts = {name: len(text) for name in DIALECTS if (text := _text_beside_calls(reply.text, name)) is not None}
    # The dialect that leaves the least text has also read the markers around the call.
    dialect = min((name for name in texts if name not in _GENERIC), key=lambda name: texts[name], default="")
    if dialect:
        detail = f"the call was in the text, in the dialect {dialect}: {collapse(reply.text, 80)}"
        is_watched = not texts.keys().isdisjoint(subject.profile.watched)
        return Conclusion("partly", detail, {"uses_tools": True, **({} if is_watched else {"watch": dialect})})
    return Conclusion("partly", "the model did not call the tool")


_GENERIC: Final = frozenset({"auto", "action"})
"""Dialects that no model is trained on: `auto` tries all dialects, and `action` belongs to the structured mode."""


def _text_beside_calls(text: str, dialect: str) -> str | None:
    """Return the text that the dialect leaves beside its calls, or None if it finds no call."""
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
        f"{kind} is refused: {reply.refusal}" if reply.refusal else reply.open_reason or f"{kind} is ignored"
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
        return Conclusion("yes", "the schema was enforced against the question", {"supports_json_schema": True})
    return Conclusion("no", f"ignored: the reply was {collapse(reply.text, 60)!r}", {"supports_json_schema": False})


def _read_logprobs(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    plain = replies[0]
    if plain.refusal:
        return Conclusion("no", f"refused: {plain.refusal}", {"supports_logprobs": False})
    if plain.fault:
        return Conclusion("no", plain.fault)
    if not plain.first_tokens:
        return Conclusion("no", "ignored", {"supports_logprobs": False})
    return Conclusion("yes", f"{len(plain.first_tokens)} of 5 for the first token", {"supports_logprobs": True})


# Contents of a conversation.


def _read_prefill(replies: Sequence[RawReply], _: Subject) -> Conclusion:
    faults = []
    for way, reply in zip(CHAT_PREFILLS, replies, strict=False):
        text = reply.text.lstrip()
        if text.startswith(CONTINUED):
            return Conclusion("yes", f"the reply continued in the middle of a word ({way})", {"prefill": way})
        if text.startswith(BEGINNING + CONTINUED):
            # No fact: the reply continues, but a client would get its own beginning twice.
            return Conclusion("partly", f"the reply continued, but repeated the beginning first ({way})")
        faults.append(f"{way}: {reply.refusal or reply.open_reason or 'ignored'}")
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
        return Conclusion("partly", "accepted, but without token counts nothing shows whether they arrive")
    facts = {"supports_system_role": True, "merge_system_messages": False}
    return Conclusion("yes", "a second and a later system message arrive", facts)


def _arrives(without: RawReply, reply: RawReply, *, counts: bool = True) -> tuple[bool, str] | None:
    """Return whether the additional text in `reply`'s request reaches the model, and the evidence if it does not.

    Return None if this is unknown: tokens are not counted, or another fault occurred.
    """
    if reply.refusal:
        return False, f"is refused: {reply.refusal}"
    fewer, tokens = without.prompt_tokens, reply.prompt_tokens
    if reply.fault or fewer is None or tokens is None or not counts:
        return None
    if tokens - fewer >= GROWTH:
        return True, ""
    return False, f"is accepted but dropped ({fewer} tokens without it, {tokens} with it)"


_ALL_FAMILIES: Final = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<|end|>", "<｜end▁of▁sentence｜>")
"""Tokens that end a turn in the templates of the largest families."""
_MAX_TOKENS: Final = 3
_ONE_TOKEN: Final = 1.6
"""Maximum tokens per copy if the text is read as a control token. Spelled out, it takes three or more."""


def _candidates(subject: Subject) -> tuple[str, ...]:
    """Return the control tokens to try: of the family, of the template, or of every large family."""
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
        return Conclusion("partly", "unknown: the backend does not count tokens")
    for token, count in counts.items():
        if count <= _ONE_TOKEN:
            detail = f"{token} in a message is read as one token, so Callboard escapes such tokens"
            return Conclusion("partly", detail, {"parses_special_tokens": True})
    # If the model's family is unknown, it may have another control token.
    facts = {} if subject.profile.control_tokens == "all" else {"parses_special_tokens": False}
    return Conclusion("yes", f"{', '.join(counts)} in a message: several tokens each", facts)


RAW_CHECKS: Final[tuple[RawCheck, ...]] = (
    RawCheck("calls", CALLS, _read_calls, ("supports_tools", "uses_tools", "watch")),
    RawCheck("schema enforced", SCHEMA, _read_schema, ("supports_json_schema",)),
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
        # One message without control tokens, and one per token with several copies.
        lambda subject: [ask(user(f"Say: ready {token * COPIES}"), most=1) for token in ("", *_candidates(subject))],
        _read_control_tokens,
        ("parses_special_tokens",),
    ),
    RawCheck("prefill", PREFILL, _read_prefill, ("prefill",), stops=True),
)
