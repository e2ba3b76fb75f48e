from __future__ import annotations

import asyncio
import functools
import itertools

import pytest
from pydantic import BaseModel
from tests.tables import table
from tests.tools.test_ensemble import Connection

from callboard import Agent, Context, Ensemble, Invoker, execute_invoker, tool
from callboard.core import ResultCanister
from callboard.errors import CallerError, DescriptorError, NoSuchTool
from callboard.testing import Call, ScriptedModel
from callboard.tools import InvokerRegistry, approval_required, cached, filtered, prefixed, renamed


class Point(BaseModel):
    x: int


@pytest.fixture
def io():
    numbers = itertools.count(1)

    @tool(idempotent=True)
    def read_file(path: str, encoding: str = "utf-8") -> str:
        if path == "nowhere":
            raise FileNotFoundError(next(numbers))
        return f"{path} in {encoding}: {next(numbers)}"

    @tool(idempotent=True)
    async def look(point: Point, tags: set[str] = frozenset()) -> int:  # noqa: ARG001 - they are the key
        return next(numbers)

    @tool
    def write_file(path: str) -> int:  # noqa: ARG001 - likewise
        return next(numbers)

    return Ensemble("io", [read_file, look, write_file], {"timeout": 7}, Connection())


def call(ensemble, name, context=None, **arguments):
    invoker = ensemble.access_invoker(name)
    return asyncio.run(execute_invoker(invoker, arguments, context, on_error="feedback")).text


WRAPPERS = [
    lambda io: prefixed(io, ""),
    lambda io: filtered(io, lambda _: True),
    lambda io: renamed(io, {}),
    approval_required,
    cached,
]


@pytest.mark.parametrize("wrap", WRAPPERS)
async def test_what_every_wrapper_keeps(io, wrap):
    before = dict(io.invokers)
    wrapped = wrap(io)
    assert (wrapped.name, wrapped.configuration, wrapped.connection) == (io.name, io.configuration, io.connection)
    assert [*wrapped.invokers] == [*io.invokers]
    assert all(each.ensemble is wrapped for each in wrapped.invokers.values())
    # The wrapped one is as it was.
    assert dict(io.invokers) == before
    assert all(each.ensemble is io and not each.approval for each in io.invokers.values())

    await wrapped.connect()
    await wrapped.disconnect()
    assert io.connection.did == ["connect", "disconnect"]


async def test_connecting_is_the_wrapped_ensembles_own():
    did = []

    class Own(Ensemble):
        async def connect(self):
            did.append("connect")

        async def disconnect(self):
            did.append("disconnect")

    wrapped = cached(prefixed(Own("own"), "x_"))
    await wrapped.connect()
    await wrapped.disconnect()
    assert did == ["connect", "disconnect"]


def test_they_compose(io):
    made = approval_required(prefixed(renamed(filtered(io, ["read_file", "look"]), {"look": "see"}), "io_"), ["io_see"])
    assert {name: each.approval for name, each in made.invokers.items()} == {"io_read_file": False, "io_see": True}
    assert call(made, "io_read_file", path="a") == "a in utf-8: 1"
    assert made.access_invoker("io_see").declare().name == "io_see"
    assert call(made, "io_see", point={"x": "one"}).startswith("Error: ArgValidationError: point.x\n")


def test_filtered_by_a_predicate(io):
    assert [*filtered(io, lambda each: not each.idempotent).invokers] == ["write_file"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda io: filtered(io, ["read_fil"]),
        lambda io: renamed(io, {"read_fil": "x"}),
        lambda io: approval_required(io, ["read_fil"]),
        lambda io: cached(io, "read_fil"),
    ],
)
def test_a_name_that_there_is_not(io, wrap):
    with pytest.raises(NoSuchTool) as caught:
        wrap(io)
    assert str(caught.value).startswith("io: no tool 'read_fil'; did you mean 'read_file'")


def test_two_of_one_name(io):
    with pytest.raises(DescriptorError, match="two tools are named 'look'"):
        renamed(io, {"read_file": "look"})


def test_names_may_be_swapped(io):
    swapped = renamed(io, {"read_file": "write_file", "write_file": "read_file"})
    assert call(swapped, "write_file", path="a") == "a in utf-8: 1"


def test_one_ensemble_twice_in_a_roster(io):
    registry = InvokerRegistry([prefixed(io, "a_"), prefixed(io, "b_")])
    assert len(registry) == 6
    assert registry["a_look"].ensemble is not registry["b_look"].ensemble


def test_parts_of_one_ensemble_that_share_a_tool_clash_in_a_roster(io):
    look, both = filtered(io, ["look"]), cached(io)
    for ensembles in ([io, io], [io, both], [prefixed(io, "a_"), prefixed(io, "a_")], [look, both]):
        with pytest.raises(
            DescriptorError, match=r"ensembles\[1\]: two ensembles are named 'io'; the other is at ensem"
        ):
            InvokerRegistry(ensembles)


def test_cached_answers_with_the_first_result(io):
    kept = cached(io)
    context = Context()
    first = call(kept, "read_file", context, path="a")
    assert call(kept, "read_file", context, encoding="utf-8", path="a") == first
    assert call(kept, "read_file", context, path="b") != first
    assert call(kept, "read_file", Context(), path="a") != first
    assert call(io, "read_file", context, path="a") != first
    # What is not idempotent is called each time.
    assert call(kept, "write_file", context, path="a") != call(kept, "write_file", context, path="a")


def test_cached_knows_python_values(io):
    kept, context = cached(io, "look"), Context()
    first = call(kept, "look", context, point={"x": 1}, tags=["a", "b"])
    assert call(kept, "look", context, tags=["b", "a"], point={"x": "1"}) == first
    assert call(kept, "look", context, point={"x": 2}) != first
    assert call(kept, "read_file", context, path="a") != call(kept, "read_file", context, path="a")


def test_failures_are_not_kept(io):
    kept, context = cached(io), Context()
    assert call(kept, "read_file", context, path="nowhere") == "Error: FileNotFoundError: 1"
    assert call(kept, "read_file", context, path="nowhere") == "Error: FileNotFoundError: 2"


def test_the_oldest_results_go_first(io):
    kept, context = cached(io), Context()
    first, second = (call(kept, "read_file", context, path=each) for each in "ab")
    for number in range(255):
        call(kept, "read_file", context, path=str(number))
    assert call(kept, "read_file", context, path="b") == second
    assert call(kept, "read_file", context, path="a") != first


def test_only_what_is_idempotent_can_be_kept(io):
    with pytest.raises(DescriptorError) as caught:
        cached(io, "write_file")
    assert str(caught.value).startswith("io: write_file is not idempotent, so its results cannot be kept; mark it so")


def test_results_are_kept_for_a_run(io):
    script = [Call("read_file", {"path": "a"}), Call("read_file", {"path": "a", "encoding": "utf-8"}), "Done."]
    for expected in (["a in utf-8: 1"] * 2, ["a in utf-8: 2"] * 2):
        result = Agent(ScriptedModel(script), ensembles=[cached(io)]).run_sync("Read.")
        assert [each.text for each in (result.canisters[2], result.canisters[4])] == expected


def twice(made):
    """The texts of two equal calls of one reply."""
    script = [[Call("look", {"name": "a"}), Call("look", {"name": "a"})], "Done."]
    result = Agent(ScriptedModel(script), ensembles=[cached(made)]).run_sync("Look.")
    return [each.text for each in result.canisters if isinstance(each, ResultCanister)]


def looks(ran, *, fails=0):
    """The same tool four ways: async, plain, plain around async, and a plain function of (context, arguments)."""

    def one(name):
        ran.append(name)
        if len(ran) <= fails:
            raise ValueError(f"try {len(ran)}")
        return f"{name}{len(ran)}"

    async def look(name: str) -> str:
        await asyncio.sleep(0)
        return one(name)

    def plain(name: str) -> str:
        return one(name)

    @functools.wraps(look)
    def wrapper(name: str):
        return look(name)

    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return [
        tool(idempotent=True)(look),
        tool(idempotent=True, name="look")(plain),
        tool(idempotent=True)(wrapper),
        Invoker("look", lambda context, arguments: one(arguments["name"]), schema, idempotent=True),
    ]


@table("kind", range(4))
def test_equal_calls_that_are_under_way_run_once(kind):
    ran = []
    assert twice(Ensemble("io", [looks(ran)[kind]])) == ["a1", "a1"]
    assert ran == ["a"]


@table("kind", range(4))
def test_a_call_runs_itself_where_the_equal_one_that_it_waited_for_fails(kind):
    ran = []
    assert twice(Ensemble("io", [looks(ran, fails=1)[kind]])) == ["Error: ValueError: try 1", "a2"]


def test_calls_are_equal_when_their_arguments_mean_the_same():
    ran = []

    @tool(idempotent=True)
    async def look(name: str, depth: int = 1) -> str:
        await asyncio.sleep(0)
        ran.append((name, depth))
        return name

    script = [[Call("look", {"name": "a"}), Call("look", {"depth": "1", "name": "a"})], "Done."]
    Agent(ScriptedModel(script), ensembles=[cached(Ensemble("io", [look]))]).run_sync("Look.")
    assert ran == [("a", 1)]


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda io: filtered(io, "read_file"), "names"),
        (lambda io: filtered(io, 5), "names"),
        (lambda io: filtered(io, b"read_file"), "names"),
        (lambda io: approval_required(io, "read_file"), "names"),
        (lambda io: approval_required(io, 5), "names"),
        (lambda io: renamed(io, "read_file"), "mapping"),
        (lambda io: renamed(io, ["read_file"]), "mapping"),
        (lambda io: renamed(io, {"read_file": 5}), "mapping"),
        (lambda io: prefixed(io, 5), "text"),
        (lambda io: cached(io, ["read_file"]), "names"),
        (lambda io: cached([io]), "ensemble"),
        (lambda io: filtered("io", ["read_file"]), "ensemble"),
    ],
)
def test_what_is_no_argument_of_a_wrapper_is_refused(io, wrap, message):
    with pytest.raises(CallerError, match=f"; give .*{message}"):
        wrap(io)
