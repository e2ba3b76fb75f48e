"""Declare as many tools as a model takes, and one more tool that finds the others.

The search covers names, descriptions and parameters with BM25, using SQLite's full-text index in memory.

Laws: each tool is declared or can be found. A declared tool keeps its place as long as the limit allows, so that prompt
caches stay valid. Found tools follow from the conversation alone, so they are declared again after a resume.
"""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from callboard.core import Canister, InvocationCanister, ResultCanister, ToolDeclaration
from callboard.tools.context import Context
from callboard.tools.invoker import Invoker

if TYPE_CHECKING:
    import sqlite3

SEARCH: Final = "search_tools"
_MATCHES: Final = 5
_SCHEMA: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "what the tool should do, in a few words"}},
    "required": ["query"],
    "additionalProperties": False,
}
_MAX_WORDS: Final = 64
_MAX_LINE: Final = 200
_INNER: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Start of an inner word, as in `createIssue`."""
_WEIGHTS: Final = "10.0, 3.0, 1.0"
"""Weights of the columns name, description and parameters."""


class _Found(msgspec.Struct):
    name: str
    description: str = ""


class _Matches(msgspec.Struct):
    tools: list[_Found]
    note: str


class ToolSearch:
    """The tools of a conversation if the model has to search for some of them.

    Args:
        declarations: All tools that the model may call.
        invokers: Their invokers and any other invokers, by the names that models use.
        searched: Names of the tools that are declared only after they were found or called.
        limit: Maximum tools that are declared at once; 0 for any number. At the limit, the tools that were found first
            are removed. They can be found again.

    Attributes:
        invokers: The invokers, including the search.
    """

    def __init__(
        self,
        declarations: Sequence[ToolDeclaration],
        invokers: Mapping[str, Invoker],
        searched: Collection[str],
        limit: int = 0,
    ) -> None:
        self._name = SEARCH
        while self._name in invokers:
            self._name += "_"
        self._searched = {each.name: each for each in declarations if each.name in searched}
        search = Invoker(self._name, self._find, _SCHEMA, description=self._describe(invokers), idempotent=True)
        self.invokers: Mapping[str, Invoker] = {**invokers, self._name: search}
        always = [each for each in declarations if each.name not in searched]
        self._always = (*always, search.declare(self._name))
        self._room = max(1, limit - len(self._always)) if limit else len(searched)

    def declarations(self, canisters: Iterable[Canister]) -> tuple[ToolDeclaration, ...]:
        """Return the tools to declare after these canisters."""
        searches: set[str] = set()
        matches: dict[str, None] = {}
        for each in canisters:
            if isinstance(each, InvocationCanister):
                if each.name == self._name:
                    searches.add(each.identifier)
                elif each.name in self._searched:
                    matches[each.name] = None
            elif isinstance(each, ResultCanister) and each.invocation_id in searches:
                matches |= dict.fromkeys(name for name in _names_in(each) if name in self._searched)
        return (*self._always, *[self._searched[name] for name in [*matches][-self._room :]])

    async def _find(self, _context: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Search for tools. This is asynchronous so that the index stays in one thread."""
        names = self._match(arguments["query"])
        tools = [
            _Found(name, self._searched[name].description.strip().partition("\n")[0][:_MAX_LINE]) for name in names
        ]
        note = "You can call these from now on." if tools else "None matches. Try other words, such as what it acts on."
        return {"tools": [msgspec.to_builtins(each) for each in tools], "note": note}

    def _match(self, query: str) -> list[str]:
        words = re.findall(r"\w+", _in_words(query))[:_MAX_WORDS]
        if not words:
            return []
        expression = " OR ".join(f'"{word}"' for word in words)
        best = f"SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {_WEIGHTS}), rowid LIMIT {_MATCHES}"  # noqa: S608  # constants
        names = [*self._searched]
        matches = [names[row] for (row,) in self._index.execute(best, (expression,))]
        if not matches:  # parts of words, and languages without spaces between words
            texts = {name: f"{name} {each.description}".casefold() for name, each in self._searched.items()}
            matches = [name for name in names if any(word.casefold() in texts[name] for word in words)][:_MATCHES]
        return matches

    @cached_property
    def _index(self) -> sqlite3.Connection:
        import sqlite3  # noqa: PLC0415 - 1 MB, for those who search

        index = sqlite3.connect(":memory:", check_same_thread=False)  # a run may resume in another event loop
        weakref.finalize(self, index.close)  # Python 3.13 warns about unclosed connections
        index.execute(
            "CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, tokenize='porter unicode61')"
        )
        rows = [
            (row, _in_words(each.name), _in_words(each.description), _in_words(_parameters(each)))
            for row, each in enumerate(self._searched.values())
        ]
        index.executemany("INSERT INTO tools (rowid, name, description, parameters) VALUES (?, ?, ?, ?)", rows)
        return index

    def _describe(self, invokers: Mapping[str, Invoker]) -> str:
        counts = Counter(each.name if (each := invokers[name].ensemble) else "" for name in self._searched)
        places = ", ".join(f"{name} ({count})" if name else f"others ({count})" for name, count in counts.items())
        return (
            f"Find tools by what they do: {len(self._searched)} more can be called once they were found, of {places}."
        )


def _names_in(result: ResultCanister) -> list[str]:
    try:
        return [each.name for each in msgspec.json.decode(result.text, type=_Matches).tools]
    except (msgspec.MsgspecError, RecursionError):  # an error, or a result that a hook changed
        return []


def _in_words(text: str) -> str:
    """Return the text in words, without lone surrogates, which SQLite rejects."""
    return _INNER.sub(" ", text).replace("_", " ").encode("utf-8", "replace").decode()


def _parameters(declaration: ToolDeclaration) -> str:
    properties = declaration.schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    described = [each.get("description") for each in properties.values() if isinstance(each, Mapping)]
    return " ".join([*map(str, properties), *[each for each in described if isinstance(each, str)]])
