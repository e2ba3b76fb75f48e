"""Write what a model is told of calling beside its tools: that it may refuse, two examples, and to think in two lines.

Small models follow an example where they do not follow a rule, and they copy what they see: the tool of the examples is
none of the request's, so that a copy of its call is a call of an unknown tool, and names nothing that could be run.

Laws: the text depends on the plan and on the tools' names alone, so that each request of a conversation begins with the
same bytes and the provider's cache of its prompt holds. It stands in what the supervisor says, which is no source of
quotations (see `sources`), so that no call is taken for a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from callboard.core import InvocationCanister, ToolDeclaration
from callboard.dialects import Dialect, NotSpellable, render_action, render_call
from callboard.dialects.thought_form import write_thought_form
from callboard.modes.mode import Plan

REFUSAL_HINT: Final = "If none of the tools can do what is asked, call none of them, and say so in words."
EXAMPLE_TOOL: Final = ToolDeclaration(
    "feeding_time",
    "When an animal of the zoo is fed.",
    {"type": "object", "properties": {"animal": {"type": "string"}}, "required": ["animal"]},
)
"""The tool of the examples."""
_CALL: Final = InvocationCanister("call_0_0", EXAMPLE_TOOL.name, {"animal": "penguin"}, '{"animal":"penguin"}')
_QUESTION: Final = "When do the penguins eat?"
_OTHER_QUESTION: Final = "Translate this letter into Greek."
_REFUSAL: Final = "I cannot do that: none of my tools translates letters."


def write_guidance(plan: Plan, tools: Iterable[ToolDeclaration]) -> str:
    """The text; "" where there is nothing to say."""
    texts = [REFUSAL_HINT] if plan.refusal_hint else []
    if all(tool.name != EXAMPLE_TOOL.name for tool in tools):  # else it would not be an example
        objects = plan.mode.declares == "constraint"
        texts.append(write_examples(plan.dialect, plan.examples, answers_in_objects=objects))
    if plan.thinks_first:
        texts.append(write_thought_form(plan.thought_tokens))
    return "\n\n".join([text for text in texts if text])


def write_examples(dialect: Dialect, count: int, *, answers_in_objects: bool = False) -> str:
    """So many examples; none for a dialect that cannot spell them.

    Args:
        dialect: How the call is spelled.
        count: 1 is a call, 2 a call and a refusal.
        answers_in_objects: Words are an answer in an object too, as in structured mode.
    """
    if not count:
        return ""
    try:
        call = render_call(dialect, _CALL, [EXAMPLE_TOOL])
    except NotSpellable:
        return ""
    refusal = render_action("", answer=_REFUSAL) if answers_in_objects else _REFUSAL
    turns = [(_QUESTION, call), (_OTHER_QUESTION, refusal)][:count]
    head = f"An example, with a tool {EXAMPLE_TOOL.name}(animal) that is not one of yours:"
    lines = [f"The user says: {question}\nYou write:\n{reply}" for question, reply in turns]
    return "\n".join([head if count == 1 else head.replace("An example", "Two examples"), *lines])
