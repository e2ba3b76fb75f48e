"""The tool `explore`: another conversation with the model searches the files for an answer, and only the answer comes back.

The files that the search reads take no room in the conversation that asked. The search can only look.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from callboard.agent import Agent
from callboard.configuration.coding import ContextSettings
from callboard.core import Model, pipe
from callboard.errors import CallerError
from callboard.execution.parallel import AfterCall
from callboard.loop import ContextWindow, Limits, RepetitionFilter
from callboard.modes import HallucinatedResultFilter, get_plan
from callboard.tools import Context, Ensemble, Policy, Tool

EXPLORE: Final = "explore"
ROUNDS: Final = 15
"""Replies with calls of one search."""
DESCRIPTION: Final = """\
Searches the files for the answer to a question, such as where something is defined, who calls it, or how it works. \
Use it if several files have to be read of which you need only a few lines."""
INSTRUCTIONS: Final = """\
You search a repository for the answer to a question, with tools that read and search files. You can change nothing. \
Answer in at most 20 lines: the files, lines and names that matter, and the lines of code that show it. \
If you did not find it, say where you looked."""


def make_explorer(
    model: Model,
    ensemble: Ensemble,
    *,
    policy: Policy,
    after_call: Callable[[], AfterCall],
    context: ContextSettings | None = None,
) -> Ensemble:
    """Return the ensemble with `explore`.

    Searches of one reply run together. Searches of a local model run in order, so that its server keeps their prompts.

    Args:
        model: The model that searches.
        ensemble: The tools that look.
        policy: The rules for their calls.
        after_call: Makes the hook of a search, which sees the results.
        context: When older rounds of a search are compacted.
    """
    context = context or ContextSettings()

    async def explore(question: str, context: Context) -> str:
        result = await make_agent().run(question, context=context)
        if not result.text.strip():
            raise CallerError(f"the search gave no answer: {result.why or 'the last reply has no text'}")
        return result.text

    def make_agent() -> Agent:
        window = ContextWindow(
            limit=get_plan(model).context_tokens, threshold=context.compact_at, keep=context.keep_rounds
        )
        return Agent(
            model,
            ensembles=[ensemble],
            instructions=INSTRUCTIONS,
            limits=Limits(rounds=ROUNDS, errors=None),
            policy=policy,
            after_call=after_call(),
            answer_after="model",
            on_repeated_call="warn",
            context_window=window,
            keep_order=True,
            event_filter=lambda: pipe(RepetitionFilter(), HallucinatedResultFilter()),
        )

    is_local = model.name.startswith("local:")
    return Ensemble(EXPLORE, [Tool(explore, description=DESCRIPTION, timeout=inf, idempotent=not is_local)])
