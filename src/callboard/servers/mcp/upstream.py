"""Serve the tools of other MCP servers again.

Questions of those servers go to the client whose call is running; the tools' annotations and the servers' instructions
are passed on.

Law: a question goes to no client but the one that has a call of these servers running; where several have, it is
declined, for the protocol does not say whose it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final

import mcp_types as types

from callboard.errors import CallerError, SchemaError
from callboard.mcp import McpEnsemble
from callboard.mcp.elicitation import ElicitAction
from callboard.mcp.sanitize import clean_schema
from callboard.schema import compile_schema
from callboard.servers.mcp.client_proxy import Asked, McpClientProxy
from callboard.tools import Ensemble, Invoker

_MAX_TEXT: Final = 4096
"""Bytes of a text in a schema."""


class Upstream:
    """Asks the clients of a ToolServer what its upstream servers ask: `elicit` and `sample` are as of McpEnsemble."""

    def __init__(self) -> None:
        self._calling: list[McpClientProxy] = []

    @contextmanager
    def calling(self, peer: McpClientProxy) -> Generator[None]:
        """A call of the peer runs at an upstream server."""
        self._calling.append(peer)
        try:
            yield
        finally:
            self._calling.remove(peer)

    async def elicit(self, text: str, schema: Mapping[str, Any]) -> tuple[ElicitAction, Mapping[str, Any] | None]:
        """The answer of the client's user; a page to open is not passed on."""
        peer = self._peer("elicitation")
        if peer is None or not schema:
            return "decline", None
        result = await peer.elicit(text, schema, key=_new_key())
        return result.action, result.content

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """The reply of the client's model. Raises CallerError where there is none to ask."""
        peer = self._peer("sampling")
        if peer is None:
            raise CallerError("no client can be asked")
        return await peer.sample(params, key=_new_key())

    def _peer(self, capability: Asked) -> McpClientProxy | None:
        sessions = {id(peer.session) for peer in self._calling}
        if len(sessions) != 1 or capability not in self._calling[-1].can:
            return None
        return self._calling[-1]


def upstream_tool(invoker: Invoker) -> types.Tool | None:
    """The tool of another server that the invoker calls, if it does."""
    ensemble = invoker.ensemble
    return ensemble.find_tool(invoker) if isinstance(ensemble, McpEnsemble) else None


def output_schema(tool: types.Tool) -> dict[str, Any] | None:
    """The schema of its results, cleaned; None for one that does not compile."""
    if tool.output_schema is None:
        return None
    try:
        compile_schema(tool.output_schema)
        return dict(clean_schema(tool.output_schema, _MAX_TEXT))
    except SchemaError:
        return None


def instructions_of(ensembles: Iterable[Ensemble]) -> str:
    """What upstream servers say about their use, each behind its name."""
    ensembles_with_instructions = [each for each in ensembles if isinstance(each, McpEnsemble) and each.instructions]
    return "\n\n".join([f"{each.name}: {each.instructions}" for each in ensembles_with_instructions])


def _new_key() -> str:
    """A new key, so that no answer can have been prepared for it."""
    return f"upstream-{secrets.token_hex(8)}"
