"""What real servers refuse: `FakeBackend(replies, strict="vllm")` refuses it too.

A `ServerRule` reads a request's body and answers with the words in which the real server refuses it, or None. A `Server` is
a name, its rules, and the form of its errors. Some refusals come from the chat template of a model and reach the
client through whichever server renders it: these are `TEMPLATES`, named beside a server, as in `("vllm", "qwen3.5")`.
Both are read from `strict.toml`, whose rules name the functions of `checks`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec

from callboard.errors import CallerError
from callboard.testing.checks import CHECKS, Body, messages
from callboard.text.suggest import suggest


class ServerRule(msgspec.Struct, frozen=True):
    """One thing that a server refuses.

    Attributes:
        name: What is asked of a request, in a few words with hyphens.
        check: Takes a request's body and returns the message of the refusal; None lets the request pass.
        thread: The address at which the refusal is shown.
        versions: Where it was seen; empty if the thread does not say.
        status: The HTTP status of the refusal.
        wire: The wire whose bodies are checked.
        fields: What the error object holds besides, or instead of, what the server's form gives.
        in_template: Whether the chat template refuses, so that the server's `template` words the message.
    """

    name: str
    check: Callable[[Body], str | None]
    thread: str = ""
    versions: str = ""
    status: int = 400
    wire: str = "chat"
    fields: Mapping[str, Any] = {}
    in_template: bool = False


def _openai(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class Server(msgspec.Struct, frozen=True):
    """A server's rules and the form of its errors.

    Attributes:
        name: As it is given to `strict`.
        rules: Asked in this order; the first refusal is the answer.
        form: Takes the status and the message and returns the body of the answer.
        template: How a chat template's exception is worded: `{}` stands for the template's own message.
        template_status: The status of a refusal by a chat template.
        roles: The roles that it gives to a chat template under another name.
    """

    name: str
    rules: tuple[ServerRule, ...] = ()
    form: Callable[[int, str], dict[str, Any]] = _openai
    template: str = "{}"
    template_status: int = 400
    roles: Mapping[str, str] = {}


Strict: TypeAlias = str | ServerRule | Server | Sequence[str | ServerRule | Server]


class StrictRefusal(msgspec.Struct, frozen=True):
    """The answer to a request that a rule refuses."""

    rule: ServerRule
    status: int
    body: Mapping[str, Any]


class Rulebook:
    """The rules of what `strict` names; its first server decides the form of the errors.

    Raises:
        CallerError: A name is neither in `SERVERS` nor in `TEMPLATES`.
    """

    def __init__(self, strict: Strict) -> None:
        named = strict if isinstance(strict, Sequence) and not isinstance(strict, str) else [strict]
        servers: list[Server] = []
        self._rules: list[ServerRule] = []
        for item in named:
            if isinstance(item, ServerRule):
                self._rules.append(item)
            elif isinstance(item, Server) or item in SERVERS:
                servers.append(item if isinstance(item, Server) else SERVERS[item])
                self._rules += servers[-1].rules
            elif item in TEMPLATES:
                self._rules += TEMPLATES[item]
            else:
                hint = suggest(item, [*SERVERS, *TEMPLATES])
                raise CallerError(f"no strict server or template is named {item!r}", path="strict", hint=hint)
        self._server = servers[0] if servers else Server("")

    def refuse(self, wire: str, body: Body) -> StrictRefusal | None:
        """The first rule's refusal of a body of that wire; None if each lets it pass."""
        rendered = {**body, "messages": [self._rename(message) for message in messages(body)]}
        for rule in self._rules:
            message = rule.check(rendered if rule.in_template else body) if rule.wire == wire else None
            if message is not None:
                return self._refusal(rule, message)
        return None

    def _rename(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        role = message.get("role")
        renamed = self._server.roles.get(role) if isinstance(role, str) else None
        return {**message, "role": renamed} if renamed else message

    def _refusal(self, rule: ServerRule, message: str) -> StrictRefusal:
        server = self._server
        status = server.template_status if rule.in_template else rule.status
        body = server.form(status, server.template.replace("{}", message) if rule.in_template else message)
        (body["error"] if isinstance(body.get("error"), dict) else body).update(rule.fields)
        return StrictRefusal(rule, status, body)


def _make_rule(
    *, check: str, message: str, arguments: Mapping[str, Any] | None = None, in_template: bool = False, **row: Any
) -> ServerRule:
    def refuse(body: Body) -> str | None:
        values = next(CHECKS[check](body, **(arguments or {})), None)
        return None if values is None else message.format_map(values)

    return ServerRule(check=refuse, in_template=in_template, **row)


def _make_server(
    name: str,
    *,
    form: str,
    kinds: Sequence[str] = ("invalid_request_error", "server_error"),
    rules: Sequence[Mapping[str, Any]] = (),
    **row: Any,
) -> Server:
    fill = partial(_fill_form, json.loads(form), kinds)
    return Server(name, tuple([_make_rule(**rule) for rule in rules]), fill, **row)


def _fill_form(form: Any, kinds: Sequence[str], status: int, message: str) -> Any:
    """The form with the values of its placeholders."""
    if isinstance(form, dict):
        return {key: _fill_form(value, kinds, status, message) for key, value in form.items()}
    match form:
        case "$message":
            return message
        case "$json":
            return json.loads(message) if message.startswith("{") else message
        case "$kind":
            return kinds[status >= 500]
        case "$status":
            return status
        case "$status_text":
            return str(status)
        case _:
            return form


_TABLES = tomllib.loads((files("callboard.testing") / "strict.toml").read_text("utf-8"))
SERVERS: Mapping[str, Server] = {name: _make_server(name, **row) for name, row in _TABLES["servers"].items()}
TEMPLATES: Mapping[str, tuple[ServerRule, ...]] = {
    name: tuple([_make_rule(in_template=True, **row) for row in rows]) for name, rows in _TABLES["templates"].items()
}
