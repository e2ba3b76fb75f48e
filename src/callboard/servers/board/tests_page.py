"""Keep a reply as a test, and the page of the kept tests with their runs.

The form of a reply has a row for each expected call: a tool, and arguments as JSON. A row without a tool expects
nothing, so a form without a tool expects no call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.core import Canister, InvocationCanister, ToolDeclaration
from callboard.jobs.job import Approval, find_mistakes
from callboard.profiles import is_of_host
from callboard.servers.board.browser import Form, follow_parts, read_value, require, send_updates
from callboard.servers.board.entry_view import read_object
from callboard.servers.board.templating import format_json, render
from callboard.servers.gateway.traffic_values import KeptReply

if TYPE_CHECKING:
    from callboard.servers.board.app import Board


class KeptTests(Protocol):
    """Keeps tests. `callboard.evaluation.kept_tests` implements it and describes the methods."""

    def list(self) -> Sequence[object]: ...

    def expect(self, canisters: Sequence[Canister], /) -> Sequence[InvocationCanister]: ...

    def keep(
        self,
        canisters: Sequence[Canister],
        tools: Sequence[ToolDeclaration],
        calls: Sequence[tuple[str, Mapping[str, Any]]],
        vector: Mapping[str, Any],
        /,
    ) -> str: ...

    def remove(self, name: str, /) -> None: ...

    def restore(self) -> str: ...

    def run(self, name: str, model: str, /) -> None: ...


class ExpectedRow(NamedTuple):
    """A row of the form: a tool, "" for none, its arguments as text, and what is wrong with them."""

    tool: str = ""
    text: str = "{}"
    mistake: str = ""


ReadReply = Callable[[Request], Awaitable[KeptReply]]


def keep_routes(board: Board, path: str, read_reply: ReadReply) -> Sequence[BaseRoute]:
    """Return the routes of the form that keeps a reply, which `read_reply` finds for a request."""

    async def show(request: Request) -> Response:
        tests, reply = require(board.parts.tests), await read_reply(request)
        calls = await asyncio.to_thread(tests.expect, reply.canisters)
        rows = [
            ExpectedRow(each.name, each.raw if each.arguments is None else format_json(each.arguments))
            for each in calls
        ]
        return show_form(request, reply, [*rows, ExpectedRow()])

    async def keep(request: Request, form: Form) -> Response:
        tests, reply = require(board.parts.tests), await read_reply(request)
        rows, calls = read_rows(form, reply.tools)
        if any(each.mistake for each in rows):
            return show_form(request, reply, rows, 422)
        name = await asyncio.to_thread(tests.keep, reply.canisters, reply.tools, calls, reply.vector)
        return board.redirect(request, f"/tests?{urlencode({'kept': name})}")

    def show_form(request: Request, reply: KeptReply, rows: Sequence[ExpectedRow], status: int = 200) -> Response:
        names = dict.fromkeys([*[each.name for each in reply.tools], *[each.tool for each in rows if each.tool]])
        values = {"reply": reply, "rows": rows, "names": list(names)}
        return board.render(request, "keep_test.html", status=status, **values)

    return [Route(path, show), Route(path, board.action(keep), methods=["POST"])]


def read_rows(
    form: Form, tools: Sequence[ToolDeclaration]
) -> tuple[Sequence[ExpectedRow], Sequence[tuple[str, Mapping[str, Any]]]]:
    """Return the rows of a form with what is wrong with them, and the expected calls."""
    schemas = {tool.name: dict(tool.schema) for tool in tools}
    rows: list[ExpectedRow] = []
    calls: list[tuple[str, Mapping[str, Any]]] = []
    while (name := form.get(f"tool-{len(rows)}")) is not None:
        text = form.get(f"arguments-{len(rows)}", "")
        arguments, mistake = read_object(text.strip() or "{}"), ""
        if name and arguments is None:
            mistake = "This is not a JSON object."
        elif name and arguments is not None:
            calls.append((name, arguments))
            mistakes = find_mistakes(Approval(call_id="", name=name, parameters=schemas.get(name)), arguments)
            mistake = "; ".join([f"{each.path or 'arguments'}: {each.message}" for each in mistakes])
        rows.append(ExpectedRow(name, text, mistake))
    return rows, calls


def routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        query = request.query_params
        return board.render(
            request,
            "kept_tests.html",
            parts=await render_parts(board, board.values(request)),
            kept=read_value(query.get("kept")),
            removed=read_value(query.get("removed")),
            has_traffic=board.parts.traffic is not None,
        )

    async def stream(request: Request) -> Response:
        read = partial(render_parts, board, board.values(request))
        return send_updates(board, request, follow_parts(board, read))

    async def remove(request: Request, form: Form) -> Response:
        await asyncio.to_thread(require(board.parts.tests).remove, form.get("name", ""))
        return board.redirect(request, f"/tests?{urlencode({'removed': form.get('name', '')})}")

    async def restore(request: Request, _: Form) -> Response:
        return board.redirect(
            request, f"/tests?{urlencode({'kept': await asyncio.to_thread(require(board.parts.tests).restore)})}"
        )

    async def run(request: Request, form: Form) -> Response:
        await asyncio.to_thread(require(board.parts.tests).run, form.get("name", ""), form.get("model", ""))
        return board.redirect(request, "/tests")

    actions = {"remove": remove, "restore": restore, "run": run}
    return [
        Route("/tests", show),
        Route("/tests/live", stream),
        *[Route(f"/tests/{name}", board.action(handler), methods=["POST"]) for name, handler in actions.items()],
    ]


async def list_models(board: Board) -> Sequence[str]:
    """Return the models of the board's jobs, except programs and files."""
    if board.parts.jobs is None:
        return []
    return [each for each in (await board.jobs.store.read_choices()).models if not is_of_host(each)]


async def render_parts(board: Board, common: Mapping[str, Any]) -> dict[str, Markup]:
    values = {"tests": await asyncio.to_thread(require(board.parts.tests).list), "models": await list_models(board)}
    return {"tests": render("kept_tests_rows.html", {**common, **values})}
