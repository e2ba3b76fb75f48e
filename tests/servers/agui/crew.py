"""An agent that needs no model: what the user says decides what it calls."""

import asyncio

from callboard import Agent, tool
from callboard.core import (
    ArgumentsPiece,
    DocumentCanister,
    PictureContent,
    ReasoningPiece,
    ReplyStarted,
    ResultCanister,
    TextPiece,
    Usage,
    UserCanister,
)
from callboard.testing import Call, ScriptedModel
from callboard.tools import Context


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(approval=True)
async def book(room: int, context: Context) -> str:
    """Book a room."""
    return f"booked {room} for {context.auxdata['agui']['state']}"


def reply(request):
    """A call by what the user said last, and an answer to its result."""
    last = request.canisters[-1]
    if isinstance(last, ResultCanister):
        return [TextPiece("It is "), TextPiece(f"{last.text}.")]
    said = next(each for each in reversed(request.canisters) if isinstance(each, UserCanister))
    calls = {
        "room": [Call("book", {"room": 7})],
        "both": [Call("book", {"room": 7}), Call("confirm", {"what": "a"})],
        "twin": [Call("book", {"room": 7}, "b1")],
        "same": [Call("confirm", {"what": "this"}, "c1")],
        "sure": [Call("confirm", {"what": "this"})],
        "think": [ReasoningPiece("Hm.", "secret", "scripted"), ReasoningPiece("", "more", "scripted"), "Done."],
        "dear": [Usage(2, 0), Call("add", {"a": 1, "b": 2})],
        "add": [ReasoningPiece("Easy."), Call("add", {"a": 1, "b": 2})],
    }
    known = [each.title for each in request.canisters if isinstance(each, DocumentCanister)]
    pictures = [each for each in said.content if isinstance(each, PictureContent)]
    other = f"{said.text} {[each.name for each in request.tools]} {known} {len(pictures)}"
    return next((call for word, call in calls.items() if word in said.text), other)


class EndlessModel(ScriptedModel):
    """`gate`, where there is one, is passed before each reply to "slowly", and before each piece of it."""

    gate: asyncio.Semaphore | None = None

    def __init__(self):
        prices = {"input": 1_000_000.0, "output": 0.0}  # a dollar a token
        super().__init__(iter(lambda: reply, None), profile={"prices": prices})

    async def batches(self, request):
        is_held = self.gate is not None and any("slowly" in each.text for each in request.canisters)
        async for events in super().batches(request):
            if is_held and isinstance(events[0], (ReplyStarted, TextPiece, ArgumentsPiece)):
                await self.gate.acquire()
            yield events


clerk = Agent(EndlessModel(), [add, book], instructions="You are a clerk.")
