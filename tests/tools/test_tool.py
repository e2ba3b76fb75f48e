from __future__ import annotations

import asyncio
import math
import sys
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Literal, Optional

import pydantic
import pytest
from tests.tables import table

from callboard import Context, Tool, tool
from callboard.errors import ToolDefinitionError
from callboard.schema import ArgumentsInvalid
from callboard.tools import Invoker
from callboard.tools.tool import context_parameters


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


@table(
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


@table(
    ("function", "name"),
    [
        pytest.param(Library().borrow, "borrow", id="bound method"),
        pytest.param(Library(), "Library", id="object"),
        pytest.param(partial(Library.borrow, Library()), "borrow", id="partial"),
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


@table("annotation", [Context, "Context", "callboard.Context", "'Context'"])
@table("name", ["context", "of_this_run"])
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


@table(
    ("function", "message"),
    [
        (takes_any, "takes_any(texts): takes any number of positional arguments; take a list instead"),
        (takes_any_keyword, "takes_any_keyword(texts): takes any keyword; name each parameter, or take a dict instead"),
        (positional_only, "positional_only(text): is positional-only; models name their arguments: remove the `/`"),
        (without_annotation, "without_annotation(text): has no annotation; say what it is: `text: str`"),
        (3, "3 is not a function; decorate a function with @tool"),
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


def test_a_description_of_its_own_goes_before_the_docstring():
    @tool(description="Find pages.")
    def find(query: str) -> str:
        """Ask the index.

        :param query: What to look for.
        """
        return query

    assert find.description == Invoker.of(find).description == "Find pages."
    assert find.schema["properties"]["query"]["description"] == "What to look for."
    assert tool(description="")(find.function).description == ""


def test_a_partial_has_the_name_and_the_docstring_of_what_it_calls():
    def borrow(title: str, days: int) -> str:
        """Borrow a book."""
        return f"{title} for {days} days"

    made = tool(partial(partial(borrow), days=7))
    assert (made.name, made.description) == ("borrow", "Borrow a book.")
    assert made.validate({"title": "Emma"}) == {"title": "Emma", "days": 7}


def annotated(*annotations):
    """A function with a word and contexts that are annotated so."""

    def look(word, first=None, second=None):
        return f"{word} {first} {second}"

    given = dict(zip(["first", "second"], annotations, strict=False))
    look.__annotations__ = {"word": str, **given}
    return partial(look, second=None) if len(annotations) == 1 else look


@table(
    "annotation",
    [
        Context,
        Context | None,
        Optional[Context],  # noqa: UP045  # as people write it
        Annotated[Context, "the run's"],
        Annotated[Context | None, "the run's"],
        "Context | None",
        "'Context'",
        "typing.Optional[callboard.Context]",
        "Union[None, Context]",
        "Annotated[Context | None, 'the run']",
    ],
    ids=str,
)
def test_a_context_may_be_optional_or_annotated(annotation):
    assert context_parameters(annotated(annotation)) == ["first"]


def test_an_optional_context_is_given_and_not_in_the_schema():
    @tool
    def look(word: str, context: Context | None = None) -> str:
        return f"{word} for {context.auxdata['who'] if context else 'nobody'}"

    assert list(look.schema["properties"]) == ["word"]
    assert asyncio.run(Invoker.of(look)(Context({"who": "Ada"}), {"word": "x"})) == "x for Ada"


@table("annotation", ["Literal['Context']", "dict[str, Context]", "not Python :(", "list[Context]"])
def test_what_only_mentions_a_context_is_none(annotation):
    assert context_parameters(annotated(annotation)) == []


def test_two_contexts_are_refused():
    with pytest.raises(
        ToolDefinitionError, match=r"^look: first and second are both annotated Context; a tool has one"
    ):
        tool(annotated(Context, Context))


def gives_several():
    yield 1


async def gives_several_later():
    yield 1


@table("function", [gives_several, gives_several_later, partial(gives_several)])
def test_generators_are_refused(function):
    with pytest.raises(ToolDefinitionError, match=r"^gives_several\w*: is an? \w* ?generator; return a list"):
        tool(function)


def test_a_method_without_its_object_is_refused_with_what_to_do():
    with pytest.raises(ToolDefinitionError, match=r"^borrow\(self\): .*; make the tool of the bound method"):
        tool(Library.borrow)


def test_what_has_no_signature_is_refused():
    with pytest.raises(ToolDefinitionError, match="has no signature that Python can tell; wrap it in a function"):
        tool(max)


@table("timeout", ["5", 0, -1, float("nan"), -math.inf, True, [1]])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout):
    with pytest.raises(ToolDefinitionError, match=r"^search: timeout=.* is not valid; Expected `float"):
        tool(timeout=timeout)(search.function)


def positional(context: Context, /, name: str) -> str:
    """Greet."""
    return f"{name} {context}"


def divides(name: 1 / 0) -> str:
    """Greet."""
    return name


def typed(kind: type[int]) -> str:
    """Greet."""
    return str(kind)


@table(
    ("function", "message"),
    [
        (positional, "positional(context): is positional-only; "),
        (divides, "divides(name): the annotation '1 / 0' cannot be resolved: division by zero"),
        (typed, "typed(kind): is a class, which JSON has not"),
    ],
)
def test_a_function_of_an_odd_shape_is_refused(function, message):
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function).schema  # noqa: B018  # the schema is derived when it is asked for
    assert str(caught.value).startswith(message)


@table("annotation", ["", {"a": int}, [int], 5, ..., Enum])
def test_whatever_an_annotation_is_the_error_names_function_and_parameter(annotation):
    def greet(name):
        return name

    greet.__annotations__["name"] = annotation
    with pytest.raises(ToolDefinitionError, match=r"^greet\(name\)"):
        tool(greet).schema  # noqa: B018


def test_an_annotation_that_needs_a_package_is_refused_with_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "email_validator", None)

    def greet(address: pydantic.EmailStr) -> str:
        return address

    with pytest.raises(ToolDefinitionError, match=r"^greet\(address\): email-validator is not installed"):
        tool(greet).schema  # noqa: B018


OPTIONS = [
    ("idempotent", "no", "Expected `bool`"),
    ("approval", "maybe", "Expected `bool`"),
    ("approval", None, "Expected `bool`"),
    ("strict", "yes", "Expected `bool | null`"),
    ("cli", ["-q"], "Expected `object | null`"),
    ("cli", {"-q": 5}, "Expected `str`"),
    ("subjects", ["query"], "Expected `object | null`"),
    ("description", 5, "give a text"),
]


@table(("option", "value", "wanted"), OPTIONS)
def test_an_option_of_the_wrong_kind_is_refused(option, value, wanted):
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}

    async def invocable(context, arguments):
        return context, arguments

    for make in (
        lambda: tool(**{option: value})(search.function),
        lambda: Invoker("search", invocable, schema, **{option: value}),
    ):
        with pytest.raises(ToolDefinitionError) as caught:
            make()
        assert str(caught.value).startswith(f"search: {option}={value!r} is not valid; {wanted}")


@table("timeout", ["5", -1, True])
def test_the_seconds_of_an_invoker_are_checked_too(timeout):
    with pytest.raises(ToolDefinitionError, match=r"^search: timeout=.* is not valid; Expected `float"):
        Invoker("search", search.function, {}, timeout=timeout)
    with pytest.raises(ToolDefinitionError, match=r"^search: timeout=.* is not valid; Expected `float"):
        Invoker.of(search).replace(timeout=timeout)


def test_an_option_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="Tool has no option 'timout'"):
        tool(timout=5)(search.function)


@table("name", [5, b"search", ["search"]])
def test_a_name_is_a_text(name):
    with pytest.raises(ToolDefinitionError, match="give a text"):
        tool(name=name)(search.function)
    with pytest.raises(ToolDefinitionError, match="give a text"):
        Invoker(name, search.function, {})
