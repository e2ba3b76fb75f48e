"""An agent whose model follows a script: which one, the first words of the prompt say."""

import asyncio
from itertools import repeat

from callboard import Agent, Invoker, tool
from callboard.core import AssistantCanister, InvocationCanister, ReasoningPiece, UserCanister
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
    "Sleep": [["I wait.", Call("sleep", {})], ["I woke up."]],
}


def reply(request):
    """What comes next in the script: as many replies were made as runs of the model's canisters are there."""
    prompt = next(each.text for each in request.canisters if isinstance(each, UserCanister))
    said = [isinstance(each, AssistantCanister | InvocationCanister) for each in request.canisters]
    replies = sum(now and not before for before, now in zip([False, *said], said, strict=False))
    return SCRIPTS[prompt.split()[0]][replies]


clerk = Agent(ScriptedModel(repeat(reply)), [edit, deploy, Invoker.of(ask).replace(deferred=True), sleep])
