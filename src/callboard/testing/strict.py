"""Refusals of real servers: `FakeBackend(replies, strict="vllm")` refuses the same requests as vLLM.

A `ServerRule` checks a request's body. It returns the real server's error message, or None. A `Server` has a name,
rules and a format of errors. Some refusals come from the chat template of a model, and any server may pass them on.
These are `TEMPLATES`, which you name together with a server, as in `("vllm", "qwen3.5")`. Both are read from
`strict.toml`, whose rules name the functions of `checks`.
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
    """A reason for which a server refuses requests.

    Attributes:
        name: The requirement, in a few words with hyphens.
        check: Takes a request's body, and returns the message of the refusal, or None to accept the request.
        thread: URL of a page that shows the refusal.
        versions: Versions with the refusal, empty if they are not known.
        status: The HTTP status of the refusal.
        wire: The wire whose bodies are checked.
        fields: Fields of the error object that extend or replace the fields of the server's form.
        in_template: True if the chat template refuses, so that the server's `template` formats the message.
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
    """A server's rules and the format of its errors.

    Attributes:
        name: The name for `strict`.
        rules: The rules in their order. The first refusal is the response.
        form: Takes the status and the message, and returns the body of the response.
        template: Message for an exception of a chat template. `{}` is replaced by the template's message.
        template_status: The status of a refusal by a chat template.
        roles: Roles that the server renames for chat templates, with their new names.
    """

    name: str
    rules: tuple[ServerRule, ...] = ()
    form: Callable[[int, str], dict[str, Any]] = _openai
    template: str = "{}"
    template_status: int = 400
    roles: Mapping[str, str] = {}


Strict: TypeAlias = str | ServerRule | Server | Sequence[str | ServerRule | Server]


class StrictRefusal(msgspec.Struct, frozen=True):
    """The response to a refused request."""

    rule: ServerRule
    status: int
    body: Mapping[str, Any]


class Rulebook:
    """The rules that `strict` names. The first server decides the format of the errors.

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
        """Return the refusal of the first rule that refuses a body of this wire, or None."""
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
    """Replace the placeholders in a form."""
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
