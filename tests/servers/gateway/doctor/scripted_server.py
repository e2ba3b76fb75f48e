"""A server of Chat Completions in a function: which fields it obeys, drops or refuses is set, and it counts tokens."""

from __future__ import annotations

import json
import re

from callboard.servers.gateway.doctor.raw_backend import RawReply
from callboard.servers.gateway.doctor.raw_checks import RAW_CHECKS
from callboard.testing.strict import Rulebook

CHECKS = {check.name: check for check in RAW_CHECKS}
EVERYTHING = frozenset(
    [
        "json_schema",
        "logprobs",
        "last",
        "prefix",
        "partial",
        "continue",
        "required",
        "named",
        "tools",
        "system",
        "second",
        "later",
        "counts",
    ]
)
_SPECIAL = "<|im_end|>"


class ScriptedServer:
    """Obeys `obeys`, and takes and ignores everything else; `refuses` are rules of `callboard.testing.strict`."""

    def __init__(self, obeys=EVERYTHING, *, strict=(), parses=True, call="native"):
        self.obeys = set(obeys)
        self.rules = Rulebook(strict)
        self.parses = parses
        self.call = call

    def __call__(self, body):
        """The status and the object that it answers."""
        refusal = self.rules.refuse("chat", body)
        if refusal is not None:
            return refusal.status, dict(refusal.body)
        message = self.reply(body)
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        if body.get("logprobs") and "logprobs" in self.obeys:
            choice["logprobs"] = {"content": [{"token": "x", "top_logprobs": self.first_token(body)}]}
        usage = {"prompt_tokens": self.count(body["messages"]), "completion_tokens": 1}
        return 200, {"choices": [choice], "usage": usage}

    def reply(self, body):
        kind = body.get("response_format", {}).get("type")
        if kind and kind in self.obeys:
            return {"content": '{"animal": "quokka"}' if kind == "json_schema" else "quokka"}
        last = body["messages"][-1]
        if last["role"] == "assistant":
            way = next((key for key in ("prefix", "partial") if key in last), "last")
            way = "continue" if "continue_final_message" in body else way
            begins = last["content"] if "echo" in self.obeys else ""
            return {"content": f'{begins}is"}}' if way in self.obeys else '{"capital": "Paris"}'}
        if body.get("tools") and last["role"] == "user" and self.calls(body["tool_choice"]):
            arguments = '{"path": "notes.txt"}'
            if self.call == "native":
                function = {"name": "read_file", "arguments": arguments}
                return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
            return {"content": self.call % arguments}
        return {"content": "Paris" if "capital" in json.dumps(last) else "ready"}

    def calls(self, choice):
        return {"auto": "tools", "required": "required"}.get(str(choice), "named") in self.obeys

    def first_token(self, body):
        return [{"token": token, "logprob": -float(place)} for place, token in enumerate(["Paris", "The", "qu"])]

    def count(self, messages):
        if "counts" not in self.obeys:
            return 7
        systems = 0
        tokens = 0
        for place, message in enumerate(messages):
            if message["role"] == "system":
                systems += 1
                feature = "system" if systems == 1 else "second" if messages[place - 1]["role"] == "system" else "later"
                if feature not in self.obeys:
                    continue
            text = str(message.get("content") or "")
            if self.parses:
                text = text.replace(_SPECIAL, "☐")
            tokens += 4 + len(re.findall(r"\w+|[^\w\s]", text))
        return tokens


def raw_reply(server, body):
    status, answer = server(body)
    if status >= 400:
        error = answer.get("error", answer)
        return RawReply(status, fault=f"{status}: {error.get('message', '') if isinstance(error, dict) else error}")
    return RawReply(status, answer)


def find(name, server, subject):
    """What the check of that name finds out of the server, without a connection."""
    check = CHECKS[name]
    replies = []
    for body in check.requests(subject):
        replies.append(raw_reply(server, body))
        if check.stops and check.read(replies, subject).state == "yes":
            break
    return check.read(replies, subject)
