"""pydantic-ai on DBOS by its DBOSAgent: a run is a workflow, and each request and tool a step of it."""

import time
from typing import Any

from bench.contenders import pydantic_ai_
from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent, ModelResponse
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.usage import UsageLimits

_requests: list[float] = []


class Scripted(pydantic_ai_.Scripted):
    async def request(self, messages: Any, *_: Any) -> ModelResponse:
        _requests.append(time.perf_counter())
        return await super().request(messages)


async def add(a: int, b: int) -> str:
    """Do what must not be done twice."""
    return f"{a:04}{b:04}"


async def request_moments(url: str, rounds: int, _: str) -> list[float]:
    """When the model was asked for each reply of a run, which is in that database, or nowhere where it is ""."""
    _requests.clear()
    limits = UsageLimits(request_limit=None)
    if not url:
        await Agent(Scripted(rounds), tools=[add]).run("go", usage_limits=limits)
        return [*_requests]
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "CRITICAL"}
    DBOS(config=config)
    agent = DBOSAgent(Agent(Scripted(rounds), name="bench", tools=[DBOS.step()(add)]))
    DBOS.launch()
    try:
        await agent.run("go", usage_limits=limits)
    finally:
        DBOS.destroy(destroy_registry=True)
    return [*_requests]
