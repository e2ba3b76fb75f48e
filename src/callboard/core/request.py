"""A request to a model, independent of providers. Modes rewrite a request, wires encode it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.core.canisters import Canister


class ToolDeclaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as a model sees it: `name`, `description` and `kind`. `schema` is the JSON Schema of its arguments object.

    `cli` maps flags such as `-t` to arguments, for models that write calls as commands. A tool of the kind `custom`
    takes one text, which `grammar` may describe (OpenAI's `format`); on other wires it is a function with
    CUSTOM_SCHEMA. A tool of the kind `search` finds tools that are declared later (OpenAI's client-side `tool_search`);
    elsewhere it is a function. With a `namespace`, the name is `namespace__local`. `strict` asks the provider to
    enforce the schema; None leaves it to the wire. `extra` are fields of the original wire that have no name here.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Any] = {}
    cli: Mapping[str, str] = {}
    kind: Literal["function", "custom", "search"] = "function"
    grammar: Mapping[str, Any] | None = None
    namespace: str = ""
    strict: bool | None = None
    extra: Mapping[str, Any] = {}

    @property
    def local(self) -> str:
        """The name in its namespace."""
        return self.name.removeprefix(f"{self.namespace}__") if self.namespace else self.name

    @property
    def full_description(self) -> str:
        """The description for wires and prompts without custom tools, followed by the grammar and an example.

        A small model copies the example of a patch, but does not follow the grammar alone.
        """
        grammar = self.grammar or {}
        definition = grammar.get("definition")
        if not isinstance(definition, str) or not definition:
            return self.description
        parts = [self.description, f"The {CUSTOM_KEY} follows this {grammar.get('syntax', 'grammar')}:\n{definition}"]
        parts += [
            f"An example of a whole {CUSTOM_KEY}:\n{example}"
            for words, example in _EXAMPLES
            if all(word in definition for word in words)
        ]
        return "\n\n".join([part for part in parts if part])


CUSTOM_KEY = "input"
_EXAMPLES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("*** Begin Patch", "*** Update File: ", "*** Add File: ", "*** End Patch"),
        """\
*** Begin Patch
*** Update File: src/greeting.py
@@ def greet(name):
     name = name.strip()
-    print("Hi " + name)
+    print(f"Hello {name}!")
     return name
*** Add File: notes.txt
+Each line of a new file begins with a plus.
*** End Patch
""",
    ),
)
"""Inputs that follow a grammar, by words that the grammar has to contain."""
CUSTOM_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {CUSTOM_KEY: {"type": "string"}},
        "required": [CUSTOM_KEY],
        "additionalProperties": False,
    }
)
"""The arguments of a custom tool as a function's schema."""


class HostedTool(msgspec.Struct, frozen=True):
    """A tool that the provider itself runs: the `wire` that defines it, its type there (`kind`), and its `definition`."""

    wire: str
    kind: str
    definition: Mapping[str, Any] = {}


class NamedTool(msgspec.Struct, frozen=True):
    """The choice of one tool, by its `name`."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


class Constraint(msgspec.Struct, frozen=True):
    """A JSON `schema` with a `name` that the reply's text has to follow; `strict` asks the provider to enforce it."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = True


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How much a model thinks, from the least to the most."""


class Controls(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to sample; None leaves it to the provider. `max_tokens` limits the reply, `stop` ends it.

    `temperature`, `top_p` and `seed` are as in OpenAI's API. `effort` is one of EFFORTS.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    effort: str | None = None


class Request(msgspec.Struct, frozen=True):
    """A request for one reply of `model` to the `canisters`.

    It may call `tools`, as `tool_choice` says, and `hosted` ones. `parallel` permits several calls per reply; None
    leaves it to the provider. `extra` is added to the body unchanged. `namespaces` describes the namespaces of the
    tools, by name. `conversation` is the whole conversation, if `canisters` are only the part that the model sees.
    `quoted_calls` decides about calls that are found in text and repeat a source of the conversation word for word:
    they are `marked`, or stay `text` if nobody can be asked. `prefill` is how to request a continuation of the last
    message, which is then the model's: by that message's place (`last`), or by a server's field for it. "" requests a
    new reply. `constraint` is a schema for the text, `controls` are how to sample, and `stream` asks for a stream.
    """

    model: str
    canisters: Sequence[Canister]
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel: bool | None = None
    constraint: Constraint | None = None
    controls: Controls = Controls()
    stream: bool = True
    extra: Mapping[str, Any] = {}
    hosted: tuple[HostedTool, ...] = ()
    namespaces: Mapping[str, str] = {}
    conversation: Sequence[Canister] = ()
    quoted_calls: Literal["marked", "text"] = "marked"
    prefill: str = ""
