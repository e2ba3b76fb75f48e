"""smolagents' ToolCallingAgent with a Model of its own. It is synchronous, so its tool is too."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from smolagents import ChatMessage, LogLevel, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
from smolagents.tools import validate_tool_arguments


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
def edit(path: str, edits: list, mode: str, dry_run: bool = False, tags: dict | None = None) -> str:  # noqa: ARG001  # only its signature is read
    """Change lines of a file.

    Args:
        path: The file.
        edits: The changes.
        mode: Whether they replace or insert.
        dry_run: Whether they are only tried.
        tags: Anything to keep with them.
    """
    return "done"


class Scripted(Model):
    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds
        self.said = 0

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        number, self.said = self.said, self.said + 1
        name, arguments = (
            ("add", {"a": number, "b": 3}) if number < self._rounds else ("final_answer", {"answer": "done"})
        )
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"call_{number}", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def prepare(_: Callable[..., Any], rounds: int) -> Callable[[], Awaitable[Any]]:
    model = Scripted(rounds)
    agent = ToolCallingAgent(tools=[add], model=model, verbosity_level=LogLevel.OFF, max_steps=rounds + 2)

    async def run() -> Any:
        model.said = 0
        return agent.run("go")

    return run


def validators(function: Callable[..., Any]) -> dict[str, Callable[[str], Any]]:
    checked = {"add": add, "edit": edit}[function.__name__]
    return {"json, types of the first level": lambda raw: validate_tool_arguments(checked, json.loads(raw))}
