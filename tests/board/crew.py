"""An agent whose model follows a script: which one, the first words of the prompt say."""

import asyncio
import os
from itertools import repeat
from pathlib import Path

from callboard import Agent, Invoker, tool
from callboard.core import AssistantCanister, InvocationCanister, ReasoningPiece, TextPiece, UserCanister
from callboard.testing import Call, ScriptedModel

DIFF = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


@tool
def edit(path: str) -> str:
    """Edit a file."""
    return f"{path} was changed:\n{DIFF}"


@tool(approval=True)
def deploy(to: str) -> str:
    """Deploy the release."""
    return f"it is on {to} now"


@tool(approval=True)
def pay(cents: int, iban: str) -> str:
    """Pay an invoice."""
    return f"{cents} cents went to {iban}"


@tool
def ask(question: str) -> str:
    """Ask the user."""
    raise NotImplementedError("a person does it")


@tool
async def sleep() -> str:
    """Sleep until somebody cancels it."""
    await asyncio.Event().wait()
    return "awake"


SCRIPTS = {
    "Ship": [
        [ReasoningPiece("The sign is wrong."), "I mend it.", Call("edit", {"path": "calc.py"})],
        ["Now it goes out.", Call("deploy", {"to": "prod"})],
        [Call("ask", {"question": "Which name has the release?"})],
        ["It is shipped."],
    ],
    "Pay": [
        [Call("pay", {"cents": 100, "iban": "DE1"})],
        [Call("pay", {"cents": 9_990_000, "iban": "XX9"})],
        ["It is paid."],
    ],
    "Slow": [["half a ", "reply"]],
    "Sleep": [["I wait.", Call("sleep", {})], ["I woke up."]],
}


class GatedModel(ScriptedModel):
    """A model that says "half a" and "reply" when there is a file of that name in the folder CALLBOARD_GATES."""

    async def batches(self, request, /):
        async for batch in super().batches(request):
            for event in batch:
                while isinstance(event, TextPiece) and is_closed(event.text):  # noqa: ASYNC110  # of another process
                    await asyncio.sleep(0.05)
            yield batch


def is_closed(name):
    """Whether a gate has that name, and nobody has opened it yet."""
    return name in {"half a ", "reply"} and not Path(os.environ["CALLBOARD_GATES"], name.strip()).exists()


def reply(request):
    """What comes next in the script: as many replies were made as runs of the model's canisters are there."""
    prompt = next(each.text for each in request.canisters if isinstance(each, UserCanister))
    said = [isinstance(each, AssistantCanister | InvocationCanister) for each in request.canisters]
    replies = sum(now and not before for before, now in zip([False, *said], said, strict=False))
    return SCRIPTS[prompt.split()[0]][replies]


clerk = Agent(GatedModel(repeat(reply)), [edit, deploy, pay, Invoker.of(ask).replace(deferred=True), sleep])
