"""Budgets of keys and of days: what a gateway refuses, what it adds, and where the sums are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest
from tests.servers.gateway.fronts import FRONTS, request
from tests.tables import table

from callboard import extras
from callboard.core import ReplyEnded, ReplyFailed, TextPiece, Usage
from callboard.errors import CallerError
from callboard.profiles import Prices
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.configuration import load_gateway_settings
from callboard.servers.gateway.gateway import open_store
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.spending import ReplyCosts, Spending, check_budgets
from callboard.testing import FakeBackend

DOLLAR = Prices(input=1_000_000.0, output=1_000_000.0)
"""A dollar a token."""
KEYS = {"alice": "a" * 64, "bob": "b" * 64}


class Time:
    def __init__(self):
        self.now = datetime(2026, 3, 1, 22, 29, 30, tzinfo=UTC)

    def __call__(self):
        return self.now


def budgets(store=None, clock=None, **settings):
    given = GatewaySettings(backends=(), keys=KEYS, **settings)
    return Spending(given, store, clock=clock or Time())


def refusal(spending, owner="alice"):
    async def check():
        try:
            await spending.check(owner)
        except HttpError as error:
            return error
        return None

    return asyncio.run(check())


@pytest.mark.parametrize("front", FRONTS)
async def test_a_request_beyond_the_budget_is_refused_in_the_words_of_its_wire(serving, front):
    async with (
        FakeBackend(["Yes.", "No."]) as backend,
        serving(backend, prices={"m": DOLLAR}, budget_per_day=2.0) as served,
    ):
        body = request(front, "?")
        first = await served.post(front, body)
        second = await served.post(front, body)
        stream = await served.post(front, {**body, "stream": True})
        asked = len([each for each in backend.requests if each.body])
    assert (first.status, second.status, stream.status, asked) == (200, 429, 429, 1)
    message = second.body["error"]["message"]
    assert message.startswith(
        "the budget of all keys for this day is spent: $2 of $2; it starts again at 00:00 UTC, in "
    )
    assert 0 < int(second.headers["retry-after"]) <= 86400
    assert stream.body["error"]["message"].startswith("the budget of all keys")


def test_a_key_has_a_budget_of_its_own_and_each_other_that_of_the_star():
    spending = budgets(key_budgets={"alice": 5.0, "*": 1.0})
    spending.charge("alice", 4.0)
    spending.charge("bob", 1.5)
    assert refusal(spending, "alice") is None
    assert str(refusal(spending, "bob")) == (
        "the budget of the key bob for this day is spent: $1.5 of $1; it starts again at 00:00 UTC, in 1 h 31 min"
    )
    assert refusal(spending, "bob").headers == {"link": ANY, "retry-after": str(91 * 60)}
    spending.charge("alice", 1.0)
    assert refusal(spending, "alice").status == 429
    assert refusal(spending, "nobody") is None


def test_a_budget_of_zero_lets_nothing_pass():
    assert refusal(budgets(key_budgets={"bob": 0.0}), "bob").status == 429


def test_the_next_day_begins_anew_and_the_last_one_is_forgotten():
    clock = Time()
    spending = budgets(clock=clock, budget_per_day=1.0)
    spending.charge("alice", 2.0)
    assert refusal(spending).status == 429
    clock.now += timedelta(hours=2)
    assert refusal(spending) is None
    spending.charge("alice", 0.5)
    assert list(spending._sums) == [("2026-03-02", "")]


def test_who_has_no_budget_leaves_no_trace():
    spending = budgets(key_budgets={"alice": 1.0})
    for number in range(100):
        spending.charge(f"client-{number}", 1.0)
    assert not spending._sums


async def test_the_sums_are_in_the_store_for_every_process_and_after_a_restart(database):
    store, other = (open_store(GatewaySettings(backends=(), store=database)) for _ in range(2))
    await store.start()
    await other.start()
    limits = {"key_budgets": {"alice": 3.0}, "budget_per_day": 10.0}
    here, there = budgets(store, **limits), budgets(other, **limits)
    for spending in (here, there, here):
        spending.charge("alice", 1.0)
    await here.aclose()
    await there.aclose()
    spent = await store.read_spending("2026-03-01", ["", "alice", "bob"])
    with pytest.raises(HttpError, match="the key alice for this day is spent"):
        await budgets(other, **limits).check("alice")
    await budgets(other, **limits).check("bob")
    await store.aclose()
    await other.aclose()
    assert spent == {"": 3.0, "alice": 3.0}


async def test_what_is_not_in_the_store_yet_counts_and_is_written_when_it_answers():
    class Store:
        answers = False
        written = None

        async def add_spending(self, costs):
            if not self.answers:
                raise HttpError("store_unavailable", "it does not answer")
            self.written = costs

        async def read_spending(self, day, names):
            return {}

    store = Store()
    spending = budgets(store, budget_per_day=1.0)
    spending.charge("alice", 1.0)
    await asyncio.sleep(0)
    with pytest.raises(HttpError, match="is spent"):
        await spending.check("alice")
    store.answers = True
    await spending.aclose()
    assert store.written == {("2026-03-01", ""): 1.0}


async def test_a_model_of_unknown_price_is_refused_where_there_is_a_budget(serving, behind):
    async with (
        FakeBackend(["a", "b"]) as unknown,
        FakeBackend(["c"]) as known,
        serving(
            behind(unknown, models=["m", "n"]),
            behind(known, models=["n"], weight=0, profile={"prices": {"input": 0, "output": 0}}),
            budget_per_day=1.0,
        ) as served,
    ):
        refused = await served.post("chat", request("chat", "?"))
        passed = await served.post("chat", request("chat", "?", model="n"))
        asked = len([each for each in unknown.requests if each.body])
    assert (refused.status, passed.status, asked) == (400, 200, 0)
    assert "the price of 'm' is not known, and there is a budget" in refused.body["error"]["message"]


async def test_the_log_and_the_metrics_have_the_cost(serving, caplog):
    with caplog.at_level("INFO", "callboard.gateway"):
        async with FakeBackend(["Yes.", "No."]) as backend, serving(backend, prices={"m": DOLLAR}) as served:
            await served.post("chat", request("chat", "?"))
            await served.post("chat", request("chat", "?", model="other"))
            metrics = (await served.get("/metrics")).text
    lines = [each.getMessage() for each in caplog.records if "tokens in" in each.getMessage()]
    assert "1 tokens in, 1 out, $2.000000, key none" in lines[0]
    assert "1 tokens in, 1 out, cost unknown, key none" in lines[1]
    assert 'callboard_cost_dollars_total{backend="' in metrics
    assert "} 2.0\n" in metrics.partition("callboard_cost_dollars_total")[2]


ENDED = [TextPiece("a"), ReplyEnded("stop")]


@table(
    ("batches", "total", "charged"),
    [
        ([[TextPiece("a")], [Usage(2, 3), ReplyEnded("stop")]], 5.0, 5.0),
        ([[Usage(2, 0), ReplyFailed("provider", "cut", "")]], 2.0, 2.0),
        # Nobody counted: a token for four bytes that were sent, and one for each piece that came.
        ([ENDED], None, 12.0),
        ([[TextPiece("a")]], None, 11.0),
        ([[TextPiece("a")], [TextPiece("b"), ReplyFailed("provider", "cut", "")]], None, 13.0),
        # Nothing was said.
        ([[ReplyFailed("provider", "overloaded", "")]], None, 0.0),
    ],
)
def test_a_reply_that_nobody_counted_is_no_way_around_a_budget(batches, total, charged):
    spending = budgets(budget_per_day=100.0)
    costs = ReplyCosts("alice", spending, size=40)
    costs.begin_reply(DOLLAR)
    for events in batches:
        costs.feed(events)
    costs.end_reply()
    assert costs.total == total
    assert sum(spending._sums.values()) == charged


def test_the_cost_of_several_replies_is_known_where_that_of_each_is():
    costs = ReplyCosts()
    for pricing in (DOLLAR, DOLLAR):
        costs.begin_reply(pricing)
        costs.feed([Usage(1, 0), ReplyEnded("stop")])
    assert costs.total == 2.0
    costs.begin_reply(None)
    costs.feed([Usage(1, 0), ReplyEnded("stop")])
    assert costs.total is None


def write(path, text):
    path.write_text(f'[[backends]]\nurl = "http://127.0.0.1:1/v1"\n{text}')
    return str(path)


def test_a_file_has_prices_and_budgets(tmp_path):
    text = (
        '[prices."gpt"]\ninput = 1\noutput = 2\n[keys]\nalice = "0123456789abcdef"\n[key_budgets]\nalice = 2\n"*" = 1'
    )
    settings = load_gateway_settings(write(tmp_path / "gateway.toml", text), {"budget_per_day": 3.0}, None)
    assert settings.prices == {"gpt": Prices(input=1, output=2)}
    assert (settings.key_budgets, settings.budget_per_day) == ({"alice": 2, "*": 1}, 3.0)


@pytest.mark.parametrize(
    ("text", "flags", "complaint"),
    [
        ("[key_budgets]\nbob = 1", {}, "no key 'bob'"),
        ('[key_budgets]\n"*" = 1', {}, "there are no keys"),
        ("[key_budgets]\nbob = -1", {}, "key_budgets"),
        ("[prices.gpt]\ninput = inf\noutput = 1", {}, "prices"),
        ("[prices]\ngpt = 5", {}, "prices"),
        ('[keys]\n"*" = "0123456789abcdef"\n[key_budgets]\n"*" = 1', {}, "a key cannot be called"),
        ('[keys]\n"" = "0123456789abcdef"', {"budget_per_day": 1.0}, "a key cannot be called"),
        ("", {"budget_per_day": 1.0}, r"pip install 'callboard\[prices\]'"),
    ],
)
def test_budgets_that_cannot_be_held_are_refused_at_the_start(tmp_path, monkeypatch, text, flags, complaint):
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "genai_prices")
    with pytest.raises(CallerError, match=complaint):
        load_gateway_settings(write(tmp_path / "gateway.toml", text), flags, None)


def test_prices_that_are_no_table_are_the_files_mistake(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text('prices = 5\n[[backends]]\nurl = "http://127.0.0.1:1/v1"\n')
    with pytest.raises(CallerError, match=r"gateway\.toml:1: prices"):
        load_gateway_settings(str(path), {}, None)


def test_the_prices_of_a_gateways_file_are_above_those_of_its_user(tmp_path):
    path = write(tmp_path / "gateway.toml", '[prices."gpt"]\ninput = 1\noutput = 2')
    users = {"gpt": DOLLAR, "qwen": DOLLAR}
    settings = load_gateway_settings(path, {"prices": users}, None)
    assert settings.prices == {"gpt": Prices(input=1, output=2), "qwen": DOLLAR}


def test_the_list_of_prices_is_read_before_the_first_request_where_it_may_be_asked():
    program = """
import logging, sys
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.server import _worker_application
from callboard.telemetry import TelemetrySettings
for url in ("http://127.0.0.1:9/v1", "https://api.example.org/v1"):
    settings = GatewaySettings(backends=(BackendSettings(url=url),))
    _worker_application(settings, logging.WARNING, None, TelemetrySettings())
    print("genai_prices" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")


def test_a_budget_of_models_of_this_machine_needs_no_list_of_prices(monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "genai_prices")
    check_budgets(GatewaySettings(backends=(BackendSettings(local="x"),), budget_per_day=1.0))
