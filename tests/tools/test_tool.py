from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pytest

from callboard import Context, Tool, tool
from callboard.errors import ToolDefinitionError
from callboard.schema import ArgumentsInvalid


# Seed 001, "Direct Usage".
@tool
def search(query: str) -> str:
    """Search the web."""
    return f"Results for {query}"


def test_the_seeds_example_is_called_like_the_function():
    assert search("Python docs") == "Results for Python docs"
    assert search(query="Python docs") == "Results for Python docs"


def test_the_seeds_example_is_described_to_models():
    assert isinstance(search, Tool)
    assert (search.name, search.description) == ("search", "Search the web.")
    assert search.schema == {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "ArgValidationError: query\n  Field required"),
        ({"query": 123}, "ArgValidationError: query\n  Input should be a valid string"),
    ],
)
def test_the_seeds_mistakes_are_told_in_its_words(arguments, message):
    with pytest.raises(ArgumentsInvalid) as caught:
        search.validate(arguments)
    assert str(caught.value) == message


def test_a_tool_still_looks_like_its_function():
    assert search.__name__ == "search"
    assert search.__doc__ == "Search the web."
    assert search.__wrapped__ is search.function
    assert repr(search) == "<Tool search>"


def test_calling_a_tool_checks_nothing():
    assert search(3) == "Results for 3"


def test_without_options():
    assert (search.timeout, search.idempotent, search.approval, search.cli) == (None, False, False, {})
    assert search.strict is None


def test_options():
    @tool(name="find", timeout=2.5, idempotent=True, approval=True, cli={"-q": "query"}, strict=True)
    def look_for(query: str) -> str:
        """Look for it."""
        return query.upper()

    assert (look_for.name, look_for.timeout) == ("find", 2.5)
    assert (look_for.idempotent, look_for.approval, look_for.cli) == (True, True, {"-q": "query"})
    assert look_for.strict is True
    assert look_for("x") == "X"


def test_an_option_that_there_is_not():
    with pytest.raises(TypeError, match="retries"):
        tool(retries=3)(search.function)


def test_async_tools():
    @tool
    async def fetch(url: str) -> str:
        """Fetch it."""
        return f"the page at {url}"

    class Fetcher:
        async def __call__(self, url: str) -> str:
            return f"what is at {url}"

    assert asyncio.run(fetch("here")) == "the page at here"
    assert asyncio.run(tool(Fetcher())("there")) == "what is at there"
    assert [each.is_async for each in (fetch, tool(Fetcher()), search)] == [True, True, False]


class Library:
    def borrow(self, title: str) -> str:
        return f"{title} is lent"

    def __call__(self, title: str) -> str:
        return self.borrow(title)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(Library().borrow, "borrow", id="bound method"),
        pytest.param(Library(), "Library", id="object"),
        pytest.param(partial(Library.borrow, Library()), "partial", id="partial"),
    ],
)
def test_what_has_no_def_of_its_own(function, name):
    made = tool(function)
    assert (made.name, tool(name="lend")(function).name) == (name, "lend")
    assert [*made.schema["properties"]] == ["title"]
    assert made(**made.validate({"title": "Emma"})) == "Emma is lent"


def test_parameters_are_described_by_annotation_and_docstring():
    @tool
    def paint(color: Literal["red", "green"], coats: int = 2, note: str | None = None) -> str:
        """Paint the wall.

        Args:
            color: Which paint.
            coats: How often.
            note: For the painter.

        """
        return f"{coats} x {color}, {note}"

    assert paint.description == "Paint the wall."
    color, coats, note = (paint.schema["properties"][name] for name in ("color", "coats", "note"))
    assert (color["enum"], color["description"]) == (["red", "green"], "Which paint.")
    assert (coats["type"], coats["default"], coats["description"]) == ("integer", 2, "How often.")
    assert (note["default"], note["description"]) == (None, "For the painter.")
    assert paint.schema["required"] == ["color"]
    assert paint.validate({"color": "red"}) == {"color": "red", "coats": 2, "note": None}
    assert paint.validate({"color": "red", "coats": "3"})["coats"] == 3


@pytest.mark.parametrize("annotation", [Context, "Context", "callboard.Context", "'Context'"])
@pytest.mark.parametrize("name", ["context", "of_this_run"])
def test_a_context_is_injected_and_not_described(annotation, name):
    def function(**given):
        return given

    source = {"function": function}
    exec(f"def remember(text, {name}): return function(text=text, seen={name})", source)
    source["remember"].__annotations__ = {"text": "str", name: annotation}
    remember = tool(source["remember"])
    assert remember.context_parameter == name
    assert [*remember.schema["properties"]] == ["text"]
    assert remember.validate({"text": "x"}) == {"text": "x"}
    with pytest.raises(ArgumentsInvalid):
        remember.validate({"text": "x", name: {}})


def test_a_tool_with_a_context_is_called_like_the_function_too():
    @tool
    def remember(context: Context, text: str) -> int:
        """Remember the text."""
        context.namespace.setdefault("texts", []).append(text)
        return len(context.namespace["texts"])

    context = Context()
    assert [remember(context, "a"), remember(context=context, text="b")] == [1, 2]
    assert remember.schema["required"] == ["text"]


def test_a_context_by_another_name_and_another_by_that_name():
    source = {"Ctx": Context, "Context": Note}
    exec("def ours(text: str, seen: Ctx): ...\ndef theirs(text: str, note: Context): ...", source)
    assert tool(source["ours"]).context_parameter == "seen"
    theirs = tool(source["theirs"])
    assert theirs.context_parameter is None
    assert theirs.validate({"text": "x", "note": {"words": "y"}})["note"] == Note("y")


@dataclass
class Note:
    words: str


def takes_any(*texts: str):
    """Refused."""


def takes_any_keyword(**texts: str):
    """Refused."""


def positional_only(text: str, /):
    """Refused."""


def without_annotation(text, count: int):
    """Refused."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (takes_any, "takes_any(texts): takes any number of positional arguments; take a list instead"),
        (takes_any_keyword, "takes_any_keyword(texts): takes any keyword; name each parameter, or take a dict instead"),
        (positional_only, "positional_only(text): is positional-only; models name their arguments: remove the `/`"),
        (without_annotation, "without_annotation(text): has no annotation; say what it is: `text: str`"),
        (3, "3 is no function; decorate a function with @tool"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_where_it_is_decorated(function, message):
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    assert str(caught.value) == message


def test_an_annotation_that_says_nothing_is_refused_when_the_schema_is_asked_for():
    @tool
    def lookup(key: Missing) -> str:  # noqa: F821 - that is the test
        """Look it up."""

    with pytest.raises(ToolDefinitionError, match=r"^lookup\(key\): the annotation 'Missing' cannot be resolved"):
        lookup.schema  # noqa: B018 - it is derived when it is read
