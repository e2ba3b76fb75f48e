"""What the doctor sends to a backend itself, on the Chat Completions wire.

Each request has an answer that nobody gives by chance: a word that no model says to the question, the end of a word
that another message begins, a number of tokens. So a backend that takes a field and ignores it is found out by its
reply. They are short, for a large model on a small machine reads a hundred tokens a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from callboard.servers.gateway.doctor.probes import MOST_TOKENS, NAMED, TOOL, Body, user
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


def control_tokens(tokens: Iterable[str]) -> tuple[Body, ...]:
    """A message without any, and one with `COPIES` of each."""
    return tuple([ask(user(f"Say: ready {token * COPIES}"), most=1) for token in ("", *tokens)])
