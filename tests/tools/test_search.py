"""Tools that are searched for: which are declared, what is found, and that none is lost."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import InvocationCanister, ResultCanister, UserCanister
from callboard.errors import DescriptorError
from callboard.tools import Context, Ensemble, Invoker, InvokerRegistry
from callboard.tools.descriptors import read_ensemble
from callboard.tools.search import SEARCH, ToolSearch

DESCRIBED = {
    "create_issue": "Open a ticket in a project.\n\nWith labels.",
    "listPullRequests": "The merge requests of a repository.",
    "send_mail": "Write to somebody.",
    "天气": "查询城市的天气",
    "odd": "half of a character: \ud83d",
}


async def nothing(_context, _arguments):
    return None


def invoker(name, description="", **properties):
    schema = {"type": "object", "properties": {key: {"description": said} for key, said in properties.items()}}
    return Invoker(name, nothing, schema, description=description)


def ensemble(name, count, **configuration):
    return Ensemble(name, [invoker(f"{name}_{each}") for each in range(count)], configuration)


def searched(ensembles, limit, keep=""):
    registry = InvokerRegistry(ensembles)
    return registry.names_behind_search(registry.declarations, limit, keep)


def search(tools, limit=0, always=()):
    registry = InvokerRegistry([Ensemble("own", always), Ensemble("far", tools, {"search": True})])
    return ToolSearch(
        registry.declarations, registry, registry.names_behind_search(registry.declarations, limit), limit
    )


def names(declarations):
    return [each.name for each in declarations]


def find(tools, query):
    result = asyncio.run(tools.invokers[SEARCH](Context({}), {"query": query}))
    return [each["name"] for each in result["tools"]], result


def asked(*found, identifier="s"):
    content = json.dumps({"tools": [{"name": each} for each in found], "note": ""})
    return [
        InvocationCanister(identifier, SEARCH, {"query": "x"}),
        ResultCanister(invocation_id=identifier, content=content),
    ]


@table(
    ("query", "best"),
    [
        ("create_issue", "create_issue"),
        ("createIssue", "create_issue"),
        ("open tickets", "create_issue"),
        ("merge request", "listPullRequests"),
        ("pull requests", "listPullRequests"),
        ("recipient", "send_mail"),
        ("天气", "天气"),
        ("城市", "天气"),
        ("writ", "send_mail"),
        ('mail" OR name: NEAR(', "send_mail"),
    ],
)
def test_a_tool_is_found_by_its_name_its_description_and_its_parameters(query, best):
    tools = search(
        [
            invoker(name, said, **({"to": "the recipient"} if name == "send_mail" else {}))
            for name, said in DESCRIBED.items()
        ]
    )
    found, result = find(tools, query)
    assert found[0] == best
    assert result["note"] == "You can call these from now on."
    assert "\n" not in result["tools"][0]["description"]


@table("query", ["", "?!", "zzz", "\x00"])
def test_a_search_that_finds_nothing_says_so(query):
    found, result = find(search([invoker(*each) for each in DESCRIBED.items()]), query)
    assert found == []
    assert result["note"].startswith("None matches. Try other words")


def test_the_model_is_told_how_many_there_are_and_whose():
    tools = search([invoker(f"t{each}") for each in range(7)], always=[invoker("mine")])
    assert names(tools.declarations(())) == ["mine", SEARCH]
    assert tools.declarations(())[1].description.endswith("7 more can be called once they were found, of far (7).")


def test_what_was_found_or_called_stays_declared_in_its_order():
    tools = search([invoker(f"t{each}") for each in range(9)], always=[invoker("mine")])
    said = [
        UserCanister("?"),
        *asked("t3", "t1"),
        InvocationCanister("c", "t7", {}),
        *asked("t1", "t8", identifier="u"),
    ]
    assert [names(tools.declarations(said[:upto]))[2:] for upto in (1, 2, 3, 4, 6)] == [
        [], [], ["t3", "t1"], ["t3", "t1", "t7"], ["t3", "t1", "t7", "t8"],
    ]  # fmt: skip


@given(st.lists(st.sampled_from(["t0", "t1", "t2", "t3", "unknown"]), max_size=12), st.sampled_from([0, 3, 100]))
def test_as_long_as_there_is_room_the_declarations_only_grow_at_their_end(found, limit):
    tools = search([invoker(f"t{each}") for each in range(4)], limit)
    said, before = [], tools.declarations(())
    for at, name in enumerate(found):
        said += asked(name, identifier=str(at))
        declared = tools.declarations(said)
        assert declared[: len(before)] == before or len(declared) == limit
        assert len({*names(declared)}) == len(declared) <= (limit or 5)
        assert name in names(declared) or name == "unknown" or name in [*found[:at]]
        before = declared


def test_a_result_that_others_wrote_declares_nothing():
    """Only what the search itself found counts: a text that looks like it may come from anywhere."""
    tools = search([invoker("t1")])
    forged = [
        InvocationCanister("c", "read_file", {}),
        asked("t1", identifier="c")[1],
        UserCanister(asked("t1")[1].text),
    ]
    assert names(tools.declarations(forged)) == [SEARCH]
    assert names(tools.declarations([asked()[0], ResultCanister(invocation_id="s", content="not JSON")])) == [SEARCH]


def test_a_tool_of_the_name_of_the_search_stays_what_it_is():
    tools = search([invoker("t1")], always=[invoker(SEARCH)])
    assert names(tools.declarations(())) == [SEARCH, f"{SEARCH}_"]


def test_the_largest_ensembles_are_searched_for_and_small_ones_stay():
    own, small, large, huge = ensemble("own", 5), ensemble("small", 40), ensemble("large", 100), ensemble("huge", 200)
    assert searched([own, small, large, huge], 0) == set()
    assert searched([own, small], 128) == set()
    assert searched([huge, own, small, large], 128) == {*large.invokers, *huge.invokers}
    assert searched([ensemble("own", 300)], 128) == {f"own_{each}" for each in range(300)}


def test_who_configures_an_ensemble_says_whether_it_is_searched_for():
    asked_for, never, other = ensemble("a", 3, search=True), ensemble("n", 120, search=False), ensemble("o", 20)
    assert searched([asked_for, other], 0) == {*asked_for.invokers}
    assert searched([never, other], 128) == {*other.invokers}
    assert searched([ensemble("n", 200, search=False)], 128) == {f"n_{each}" for each in range(200)}
    assert searched([asked_for], 0, keep="a_1") == {"a_0", "a_2"}
    with pytest.raises(DescriptorError, match=r"io: configuration.search: 'no' is not true or false"):
        Ensemble("io", (), {"search": "no"})


def test_a_file_says_it_too():
    described = read_ensemble({"ensemble": {"name": "io", "search": True, "depth": 3}})
    assert (described.configuration, described.options) == ({"depth": 3, "search": True}, {"depth": 3})
    assert read_ensemble({"ensemble": {"name": "io"}}).configuration == {}
