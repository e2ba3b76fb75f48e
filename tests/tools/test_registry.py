from __future__ import annotations

import asyncio

import pytest
from tests.tables import table

from callboard import Context, Ensemble, tool
from callboard.tools import InvokerRegistry


def named(*names):
    def make(name):
        @tool(name=name)
        def speak() -> str:
            """Say the name."""
            return name

        return speak

    return [make(name) for name in names]


@table(
    ("ensembles", "names"),
    [
        ([], []),
        ([("io", ["read", "write"])], ["read", "write"]),
        ([("io", ["read"]), ("web", ["fetch"])], ["read", "fetch"]),
        ([("io", ["read", "write"]), ("web", ["read"])], ["io__read", "write", "web__read"]),
        ([("io", ["read", "web__read"]), ("web", ["read"])], ["io__read", "web__read", "web__read_"]),
    ],
)
def test_names_are_plain_where_they_are_unique(ensembles, names):
    registry = InvokerRegistry([Ensemble(name, named(*tools)) for name, tools in ensembles])
    assert [*registry] == names
    assert len(registry) == len(names)
    assert [each.name for each in registry.declarations] == names


def test_each_name_is_its_own_tool():
    files, web = Ensemble("files", named("read", "list")), Ensemble("web", named("read"))
    registry = InvokerRegistry([files, web])
    assert registry["files__read"] is files.access_invoker("read")
    assert registry["web__read"] is web.access_invoker("read")
    assert asyncio.run(registry["list"](Context(), {})) == "list"
    assert "read" not in registry
    with pytest.raises(KeyError):
        registry["read"]


def test_names_are_settled_once():
    io = Ensemble("io", named("read"))
    registry = InvokerRegistry([io])
    io.add_invoker(named("write")[0])
    assert [*registry] == ["read"]


def test_declarations_say_what_the_tools_are():
    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply two whole numbers."""
        return a * b

    (declared,) = InvokerRegistry([Ensemble("local", [multiply])]).declarations
    assert (declared.name, declared.description) == ("multiply", "Multiply two whole numbers.")
    assert declared.schema == multiply.schema
