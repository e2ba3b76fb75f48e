"""LangGraph's prebuilt agent on its SQLite checkpointer, which commits before it goes on (`durability="sync"`)."""

import time
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import create_react_agent

_requests: list[float] = []


class Scripted(BaseChatModel):
    rounds: int

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        _requests.append(time.perf_counter())
        # The request after the n-th round has 2n + 1 messages.
        number = len(messages) // 2
        call = {"name": "change", "args": {"number": number, "characters": 8}, "id": f"call_{number}"}
        message = AIMessage("", tool_calls=[call]) if number < self.rounds else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


async def change(number: int, characters: int) -> str:
    """Do what must not be done twice."""
    return f"{number:04}" * (characters // 4)


async def request_moments(url: str, rounds: int, _: str) -> list[float]:
    """When the model was asked for each reply of a run, which is in that database, or nowhere where it is ""."""
    _requests.clear()
    asked = {"messages": [("user", "go")]}
    settings: Any = {"configurable": {"thread_id": uuid4().hex}, "recursion_limit": 3 * rounds + 10}
    if not url:
        await create_react_agent(Scripted(rounds=rounds), [change]).ainvoke(asked, settings)
        return [*_requests]
    async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        agent = create_react_agent(Scripted(rounds=rounds), [change], checkpointer=saver)
        await agent.ainvoke(asked, settings, durability="sync")
    return [*_requests]
