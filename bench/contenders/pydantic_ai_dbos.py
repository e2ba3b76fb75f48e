"""pydantic-ai on DBOS by its DBOSAgent: a run is a workflow, and each request and tool a step of it."""

import time
from typing import Any

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageLimits

_requests: list[float] = []


class Scripted(Model):
    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def system(self) -> str:
        return "scripted"

    async def request(self, messages: Any, *_: Any) -> ModelResponse:
        _requests.append(time.perf_counter())
        # The request after the n-th round has 2n + 1 messages.
        number = len(messages) // 2
        if number < self._rounds:
            call = ToolCallPart("change", f'{{"number": {number}, "characters": 8}}', tool_call_id=f"call_{number}")
            return ModelResponse(parts=[call], model_name="scripted")
        return ModelResponse(parts=[TextPart("done")], model_name="scripted")


async def change(number: int, characters: int) -> str:
    """Do what must not be done twice."""
    return f"{number:04}" * (characters // 4)


async def request_moments(url: str, rounds: int, _: str) -> list[float]:
    """When the model was asked for each reply of a run, which is in that database, or nowhere where it is ""."""
    _requests.clear()
    limits = UsageLimits(request_limit=None)
    if not url:
        await Agent(Scripted(rounds), tools=[change]).run("go", usage_limits=limits)
        return [*_requests]
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "CRITICAL"}
    DBOS(config=config)
    agent = DBOSAgent(Agent(Scripted(rounds), name="bench", tools=[DBOS.step()(change)]))
    DBOS.launch()
    try:
        await agent.run("go", usage_limits=limits)
    finally:
        DBOS.destroy(destroy_registry=True)
    return [*_requests]
