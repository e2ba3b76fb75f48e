"""What replies cost. The prices of the list change with its package, so tests of it have a list of their own."""

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from genai_prices import data_snapshot
from genai_prices.types import (
    ClauseEquals,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard import extras
from callboard.core import Usage
from callboard.errors import CallerError
from callboard.modes import make_plan
from callboard.profiles import Prices, prices, resolve
from callboard.profiles.prices import FallbackPrices, ListPrices, describe_pricing, require_price

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
URL = "https://api.acme.example/v1"
COUNTS = st.integers(0, 10**7)


def model(name, listed):
    return ModelInfo(id=name, match=ClauseEquals(name), prices=listed)


def dollars(**listed):
    return ModelPrice(**{f"{name}_mtok": Decimal(str(price)) for name, price in listed.items()})


@pytest.fixture
def listed():
    """A list of one provider in the place of the package's own."""
    tiers = TieredPrices(base=Decimal(2), tiers=[Tier(start=1000, price=Decimal(4))])
    provider = Provider(
        id="acme",
        name="Acme",
        api_pattern=r"https://api\.acme\.example",
        models=[
            model("all", dollars(input=2, output=10, cache_read=1, cache_write=3, cache_write_1h=5)),
            model("plain", dollars(input=2, output=10)),
            model("thinker", dollars(input=2, output=10, output_reasoning=3)),
            model("tiers", ModelPrice(input_mtok=tiers, output_mtok=Decimal(1))),
            model("pictures", dollars(output_image=40)),
            model(
                "cheaper",
                [
                    ConditionalPrice(prices=dollars(input=8, output=8)),
                    ConditionalPrice(StartDateConstraint(date(2026, 5, 1)), prices=dollars(input=4, output=4)),
                    ConditionalPrice(StartDateConstraint(date(2027, 1, 1)), prices=dollars(input=1, output=1)),
                ],
            ),
            ModelInfo(id="any", match=ClauseStartsWith("any"), prices=dollars(input=1, output=1)),
        ],
    )
    data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot(providers=[provider], from_auto_update=False))
    prices._find_listed.cache_clear()
    prices._list_date.cache_clear()
    yield
    data_snapshot.set_custom_snapshot(None)
    prices._find_listed.cache_clear()
    prices._list_date.cache_clear()


MILLION = 1_000_000
LISTED = pytest.mark.usefixtures("listed")
USAGES = [
    (Usage(input=MILLION, output=100_000), 3.0),
    (Usage(input=MILLION, cached=500_000), 1.5),
    (Usage(input=MILLION, cache_write=500_000), 2.5),
    (Usage(input=MILLION, cache_write=500_000, cache_write_1h=400_000), 3.3),
    (Usage(input=MILLION, cached=200_000, cache_write=500_000, cache_write_1h=400_000), 3.1),
    (Usage(output=MILLION, reasoning=900_000), 10.0),
    # What cannot be: more was cached than there was, as some servers count.
    (Usage(input=MILLION, cached=2 * MILLION, cache_write=MILLION), 1.0),
    (Usage(output=10, reasoning=20), 0.0001),
    (Usage(), 0.0),
]


@pytest.mark.parametrize(("usage", "cost"), USAGES)
@LISTED
def test_each_kind_of_tokens_has_its_price(usage, cost):
    own = Prices(input=2, output=10, cached=1, cache_write=3, cache_write_1h=5)
    assert own.cost(usage, NOW) == pytest.approx(cost)
    assert ListPrices(URL, "all").cost(usage, NOW) == pytest.approx(cost)


@LISTED
def test_what_has_no_price_of_its_own_costs_what_other_input_does():
    usage = Usage(input=MILLION, cached=300_000, cache_write=300_000, cache_write_1h=100_000)
    assert Prices(input=2, output=10).cost(usage, NOW) == ListPrices(URL, "plain").cost(usage, NOW) == 2.0
    assert Prices(input=2, output=10, cache_write=4).cost(usage, NOW) == pytest.approx(2.6)


@given(st.tuples(*[COUNTS] * 6))
def test_counts_that_contradict_each_other_cost_no_less_than_the_cheapest_input(counts):
    usage = Usage(*counts)
    cost = Prices(input=2, output=10, cached=1, cache_write=3).cost(usage, NOW)
    assert cost >= (usage.input * 1 + usage.output * 10) / MILLION - 1e-6


@LISTED
def test_reasoning_may_have_a_price_of_its_own():
    assert ListPrices(URL, "thinker").cost(Usage(output=MILLION, reasoning=MILLION), NOW) == 3.0


@LISTED
def test_a_price_that_grows_with_the_input_is_that_of_the_reply():
    tiers = ListPrices(URL, "tiers")
    assert tiers.cost(Usage(input=1000), NOW) * 2 == pytest.approx(0.004)
    assert tiers.cost(Usage(input=2000), NOW) == pytest.approx(0.008)
    assert tiers.describe(NOW).prices == {"input": "2, 4 above 1000 input tokens", "output": 1.0}


@LISTED
def test_a_price_is_that_of_the_day():
    cheaper, usage = ListPrices(URL, "cheaper"), Usage(input=MILLION)
    assert cheaper.cost(usage, NOW.replace(month=4)) == 8.0
    assert cheaper.cost(usage, NOW) == 4.0


@LISTED
def test_the_list_is_of_the_day_of_its_newest_price():
    described = ListPrices(URL, "cheaper").describe(NOW)
    assert (described.prices, described.date) == ({"input": 4.0, "output": 4.0}, "2026-05-01")
    assert described.source.startswith("genai-prices ")
    assert described.source.endswith(", acme cheaper")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://elsewhere.example/v1", "all"),
        (URL, "nobody-knows"),
        (URL, "pictures"),
    ],
)
@LISTED
def test_what_the_list_has_not_is_unknown(url, name):
    unknown = ListPrices(url, name)
    assert unknown.cost(Usage(input=1, output=1), NOW) is None
    assert unknown.describe(NOW).why == "genai-prices has none for its address"
    with pytest.raises(CallerError) as error:
        require_price(unknown, name, NOW, path="budget")
    assert str(error.value) == (
        f"budget: a budget needs the price of {name}: genai-prices has none for its address; "
        f'write [prices."{name}"] with input and output, in dollars a million tokens, into callboard.toml'
    )


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "genai_prices")
    hosted = ListPrices("https://api.openai.com/v1", "gpt-without-the-extra")
    assert hosted.cost(Usage(input=1), NOW) is None
    with pytest.raises(CallerError, match="pip install 'callboard\\[prices\\]'"):
        require_price(hosted, hosted.model, NOW, path="budget")


@LISTED
def test_names_that_clients_make_up_are_not_kept():
    for number in range(2000):
        assert ListPrices(URL, f"any{number}").cost(Usage(input=MILLION), NOW) == 1.0
    snapshot = data_snapshot.get_snapshot()
    assert prices._find_listed.cache_info().currsize == 1024
    assert len(snapshot._lookup_cache) + len(snapshot._provider_cache) == 1


def test_of_models_in_a_row_each_has_its_own_price():
    row = FallbackPrices((("a", Prices(input=1, output=0)), ("b", Prices(input=5, output=0)), ("c", None)))
    assert [row.cost(Usage(MILLION, model=name), NOW) for name in ("", "a", "b", "c", "d")] == [
        1.0,
        1.0,
        5.0,
        None,
        None,
    ]
    assert not row.is_known(NOW)
    assert describe_pricing(row, "row", NOW).hint.startswith('write [prices."c"]')
    assert FallbackPrices(row.by_model[:2]).is_known(NOW)


def test_a_name_that_several_models_have_costs_what_the_dearest_takes():
    cheap, dear = Prices(input=0, output=0), Prices(input=5, output=0)
    assert FallbackPrices((("a", cheap), ("a", dear))).cost(Usage(MILLION, model="a"), NOW) == 5.0
    assert FallbackPrices((("a", cheap), ("a", None))).cost(Usage(MILLION, model="a"), NOW) is None


def test_a_model_of_this_machine_costs_nothing():
    assert make_plan(resolve("local:x")).prices.cost(Usage(9, 9), NOW) == 0.0


def test_who_is_asked_sets_the_price():
    own, hosted = resolve("openai:all", {"prices": {"input": 1, "output": 1}}), resolve("openai:all")
    assert make_plan(own, base_url=URL).prices == Prices(input=1, output=1)
    assert make_plan(hosted, base_url=URL).prices == ListPrices(URL, "all")
    assert make_plan(hosted).prices == ListPrices("https://api.openai.com/v1", "all")
    assert make_plan(hosted, base_url="http://127.0.0.1:8000/v1").prices is None
    assert make_plan(resolve("all")).prices is None


def test_the_package_has_its_list_inside_and_fetches_nothing():
    program = """
import socket, threading
def refuse(*_): raise AssertionError("it asks the network")
socket.socket.connect = socket.getaddrinfo = refuse
from datetime import UTC, datetime
from callboard.core import Usage
from callboard.profiles.prices import ListPrices, load_list
import sys
assert "genai_prices" not in sys.modules
load_list()
assert "genai_prices" in sys.modules
now = datetime.now(UTC)
for url, model in [
    ("https://api.openai.com/v1", "gpt-4o"), ("https://api.anthropic.com", "claude-sonnet-4-5"),
    ("https://generativelanguage.googleapis.com/v1beta", "gemini-2.5-pro"),
    ("https://openrouter.ai/api/v1", "qwen/qwen3-coder"),
]:
    prices = ListPrices(url, model)
    assert prices.cost(Usage(1000, 1000), now) > 0, model
    assert prices.describe(now).date > "2026-01-01"
assert threading.active_count() == 1
print("ok")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("ok\n", "")
