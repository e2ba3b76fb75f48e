"""An agent as one tool: each round is a step of progress, each call a log message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callboard.agent import Agent
from callboard.core import (
    Event,
    InvocationEnded,
    Note,
    ResultReady,
    RoundStarted,
)
from callboard.errors import CallerError
from callboard.servers.mcp.client_proxy import KEY, McpClientProxy
from callboard.tools import Context, Ensemble, Invoker

LONGEST: Final = 86_400.0
"""Seconds that a run may take; its agent's limits are its own, and its client may cancel it."""

_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What the agent is to do"}},
    "required": ["prompt"],
    "additionalProperties": False,
}
DESCRIPTION: Final = "Asks an agent that works on its own, with tools of its own, and answers when it is done."


def agent_ensemble(agent: Agent[Any], *, name: str = "run", description: str = DESCRIPTION) -> Ensemble:
    """An ensemble whose one tool runs the agent. Each call is a conversation of its own.

    An agent without `approve` asks the client's user, by elicitation.
    """

    async def run(context: Context, arguments: Mapping[str, Any]) -> Any:
        peer: McpClientProxy = context.auxdata[KEY]
        agent_run = agent.stream(arguments["prompt"], approve=agent.settings.approve or peer.approve)
        async with agent_run:
            async for event in agent_run:
                await _report(peer, event)
        if agent_run.failure is not None:
            raise agent_run.failure
        if agent_run.result.state != "completed":
            raise CallerError(f"the agent gave no answer: {agent_run.result.why}", hint=agent_run.result.text)
        return agent_run.result.output

    return Ensemble("agent", [Invoker(name, run, _SCHEMA, description=description, timeout=LONGEST)])


async def _report(peer: McpClientProxy, event: Event) -> None:
    match event:
        case RoundStarted(number=number):
            await peer.progress(number, message=f"round {number}")
        case InvocationEnded(name=name, raw=raw):
            await peer.log("info", {"call": name, "arguments": raw}, "agent")
        case ResultReady(canister=result):
            text = result.error.message if result.error else result.text
            await peer.log("info", {"result": text[:1000], "error": result.error is not None}, "agent")
        case Note(kind=kind, text=text):
            await peer.log("warning" if kind == "alert" else "debug", {"note": kind, "text": text}, "agent")
        case _:
            pass
