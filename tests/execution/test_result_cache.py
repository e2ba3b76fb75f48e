"""Results of tools that ask for it are kept for later runs."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from tests.tables import table

from callboard import Agent, Ensemble, tool
from callboard.core import CommandOutput, PictureContent, ResultCanister, TextualContent
from callboard.errors import DescriptorError, ToolDefinitionError
from callboard.execution import execute_invoker, result_cache
from callboard.execution.execute import run_invoker
from callboard.testing import Call, ScriptedModel
from callboard.tools import Context, Invoker, InvokerDescriptor, as_invoker, cached, make_invoker

HOUR = {"ttl": "1h"}


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(result_cache, "state_directory", lambda: tmp_path / "state")
    return tmp_path / "state" / "results.db"


@pytest.fixture
def ran():
    return []


@pytest.fixture
def price(ran):
    @tool(idempotent=True, cache=HOUR)
    async def price(item: str, currency: str = "EUR") -> str:
        """Look up a price."""
        ran.append(item)
        if item == "gone":
            raise LookupError(f"no {item}")
        return f"{item}: {len(ran)} {currency}"

    return price


def call(invoker, context=None, **arguments):
    return asyncio.run(execute_invoker(invoker, arguments, context, on_error="feedback")).text


def test_a_later_run_is_answered_with_the_result_of_an_earlier_one(price, ran):
    script = [Call("price", {"item": "milk"}), "It is 1."]
    runs = [Agent(ScriptedModel(script), tools=[price]).run_sync("How much?") for _ in range(2)]
    for run in runs:
        assert [each.text for each in run.canisters if isinstance(each, ResultCanister)] == ["milk: 1 EUR"]
    assert ran == ["milk"]


def test_the_result_belongs_to_its_arguments_and_to_what_the_caller_is(price, tmp_path, monkeypatch):
    assert call(price, item="milk") == "milk: 1 EUR"
    # With the default, in another order.
    assert call(price, currency="EUR", item="milk") == "milk: 1 EUR"
    assert call(price, item="milk", currency="USD") == "milk: 2 USD"
    assert call(price, Context({"user": "ann"}), item="milk") == "milk: 3 EUR"
    assert call(price, Context({"user": "ann"}), item="milk") == "milk: 3 EUR"
    # What JSON cannot say is no key.
    assert call(price, Context({"user": object()}), item="milk") == "milk: 4 EUR"
    monkeypatch.chdir(tmp_path)
    assert call(price, item="milk") == "milk: 5 EUR"
    assert call(Ensemble("shop", [price]).access_invoker("price"), item="milk") == "milk: 6 EUR"


def test_another_version_of_a_function_has_results_of_its_own(ran):
    def version(text):
        names = {"tool": tool, "ran": ran}
        exec(f"@tool(idempotent=True, cache={HOUR})\ndef look(name: str) -> str:\n    return {text}", names)
        return names["look"]

    assert call(version("'one'"), name="a") == "one"
    assert call(version("'one'"), name="a") == "one"
    assert call(version("'two'.upper()"), name="a") == "TWO"


def test_failures_and_commands_are_not_kept(price, ran):
    assert call(price, item="gone") == call(price, item="gone") == "Error: LookupError: no gone"
    assert ran == ["gone", "gone"]

    @tool(idempotent=True, cache=HOUR)
    def check() -> str:
        """Run a check."""
        ran.append("check")
        return CommandOutput("1 failed", 1)

    assert call(check) == call(check) == "1 failed"
    assert ran[2:] == ["check", "check"]


def test_equal_calls_of_one_reply_run_once(price, ran):
    script = [[Call("price", {"item": "milk"}), Call("price", {"item": "milk"})], "Done."]
    Agent(ScriptedModel(script), tools=[price]).run_sync("How much?")
    assert ran == ["milk"]


def test_only_the_calls_that_are_idempotent_are_kept(ran):
    def act(_, arguments):
        ran.append(arguments["what"])
        return str(len(ran))

    schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    invoker = Invoker("act", act, schema, repeatable=lambda arguments: arguments["what"] == "look", cache=HOUR)
    assert [call(invoker, what=what) for what in ("look", "look", "write", "write")] == ["1", "1", "2", "3"]


def test_an_ensemble_of_others_is_cached_by_a_wrapper(ran):
    @tool(idempotent=True)
    def look(name: str) -> str:
        ran.append(name)
        return f"{name}{len(ran)}"

    wrapped = cached(Ensemble("io", [look]), "look", ttl="1h")
    assert [call(wrapped.access_invoker("look"), name="a") for _ in range(2)] == ["a1", "a1"]
    with pytest.raises(ToolDefinitionError, match=r"look: cache=\{'ttl': 'soon'\} is not valid; give a length of time"):
        cached(Ensemble("io", [look]), ttl="soon")


def test_what_is_not_idempotent_cannot_be_kept():
    def look(name: str) -> str:
        return name

    message = "it is not idempotent, so its results cannot be kept; mark it idempotent"
    with pytest.raises(ToolDefinitionError, match=f"look: {message}"):
        tool(cache=HOUR)(look)
    with pytest.raises(ToolDefinitionError, match=message):
        as_invoker(look).replace(cache=HOUR)
    with pytest.raises(ToolDefinitionError, match=message):
        as_invoker(tool(idempotent=True, cache=HOUR)(look)).replace(idempotent=False)
    with pytest.raises(DescriptorError, match=f"shop.toml:4: look: {message}"):
        make_invoker(InvokerDescriptor(name="look", options={"cache": HOUR}, path="shop.toml:4"), look)
    made = make_invoker(InvokerDescriptor(name="look", options={"cache": HOUR, "idempotent": True}), look)
    assert made.cache == HOUR


@table("cache", ["1h", {"ttl": 60}, {"ttl": "0s"}, {"ttl": "1h", "size": 3}, {}, {"ttl": "soon"}])
def test_what_is_no_cache(cache):
    with pytest.raises(
        ToolDefinitionError, match=r'is not valid; (give a length of time, such as \{"ttl": "1h"\}|Expected `)'
    ):
        tool(idempotent=True, cache=cache)(len)


def test_where_the_file_cannot_be_opened_the_call_is_made(price, file):
    file.mkdir(parents=True)
    told = []
    result = asyncio.run(run_invoker(as_invoker(price), {"item": "milk"}, tell=told.append))
    assert result.text == "milk: 1 EUR"
    (line,) = told
    assert line.startswith("results of price are not kept: ")


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    return now


def kept(key, seconds=60):
    result = result_cache._find(key, seconds)
    return result and result.content


def save(key, content="text", seconds=60):
    result_cache._save(key, ResultCanister(invocation_id="call_1", content=content), seconds)


def query(file, statement):
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement).fetchone()


def test_a_result_is_what_it_was_in_a_file_of_its_user(file):
    content = (TextualContent("a\0b\ud7ff"), PictureContent(b"\x89PNG\r\n\x1a\n\x00", "image/png"))
    save(b"\x00key", content)
    assert kept(b"\x00key") == content
    assert kept(b"other") is None
    save(b"\x00key", "newer")
    assert kept(b"\x00key") == (TextualContent("newer"),)
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_has_expired_is_not_given_and_goes(file, clock):
    save(b"short", seconds=10)
    save(b"long", seconds=100)
    clock[0] += 11
    assert kept(b"short", 10) is None
    assert kept(b"long", 100)
    # Its tool keeps results for a shorter time now.
    assert kept(b"long", 10) is None
    save(b"another")
    assert query(file, "SELECT count(*) FROM results") == (2,)
    # A clock that was set back: nobody knows how old it is.
    clock[0] = 500.0
    assert kept(b"long", 100) is None


def test_the_oldest_go_if_there_are_too_many_bytes(file, clock, monkeypatch):
    monkeypatch.setattr(result_cache, "MAX_BYTES", 4400)
    for number in range(20):
        clock[0] += 1
        save(b"%d" % number, "x" * 900)
    assert [number for number in range(20) if kept(b"%d" % number)] == [16, 17, 18, 19]
    save(b"huge", "x" * result_cache.MAX_RESULT)
    assert kept(b"huge") is None
    assert query(file, "SELECT count(*) FROM results") == (4,)


def test_a_row_that_is_no_result_is_passed_over(file):
    save(b"key")
    query(file, "UPDATE results SET content = 'no'")
    assert kept(b"key") is None


PROGRAM = """
import sys
from callboard import Agent, tool
from callboard.testing import Call, ScriptedModel

@tool(idempotent=True)
def price(item: str) -> str:
    "Look up a price."
    return item

Agent(ScriptedModel([Call("price", {"item": "milk"}), "Done."]), tools=[price]).run_sync("How much?")
assert "sqlite3" not in sys.modules and "callboard.jobs" not in sys.modules
"""


def test_no_database_is_imported_unless_a_tool_asks(tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True, cwd=tmp_path)
