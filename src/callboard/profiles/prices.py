"""What tokens cost, in US dollars, by the list that genai-prices ships, and what is said of prices.

The list (extra `prices`) is data inside its package, and nothing here ever asks for a newer one. Its import takes
200 ms, so it is done when a price is first looked up, or by `load_list` before a server serves. Who charges for a reply is known by the address that was asked:
a model of the same name at another address has no price until somebody writes it down.

Laws: an unknown cost is None, never 0; counts that contradict each other, which a provider may send, cost no less than
those that fit.
"""

from __future__ import annotations

import datetime as dt
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core import Usage
from callboard.errors import CallerError
from callboard.extras import is_extra_installed
from callboard.profiles.profile import Prices, Pricing, split_input

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

_UNPRICED = "genai-prices has none for its address"


class PriceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of a million tokens, with where they come from; `why` says what is missing where there are none."""

    prices: dict[str, float | str] = {}
    source: str = ""
    date: str = ""
    why: str = ""
    hint: str = ""


class ListPrices(msgspec.Struct, frozen=True):
    """The prices that genai-prices lists for a model at an address."""

    url: str
    model: str

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """The cost of one reply at a time, None where it is unknown."""
        row = self._find(now)
        if row is None:
            return None
        from genai_prices import Usage as PricedUsage  # noqa: PLC0415  # it takes 200 ms

        fresh, cached, written, written_1h = split_input(usage)
        counts = {
            "input_tokens": fresh + cached + written + written_1h,
            "cache_read_tokens": cached,
            "cache_write_tokens": written + written_1h,
            "cache_write_1h_tokens": written_1h,
            "output_tokens": usage.output,
            "output_reasoning_tokens": min(usage.reasoning, usage.output),
        }
        provider, model = row
        priced = PricedUsage(**{name: count for name, count in counts.items() if count})
        return float(model.calc_price(priced, provider, genai_request_timestamp=now).total_price)

    def is_known(self, now: dt.datetime) -> bool:
        """Whether the cost of replies is known."""
        return self.cost(Usage(input=1, output=1), now) is not None

    def describe(self, now: dt.datetime) -> PriceDescription:
        """The prices in words."""
        if not is_extra_installed("prices"):
            return PriceDescription(
                why="it is not known without the extra `prices`", hint="pip install 'callboard[prices]'"
            )
        row = self._find(now)
        if row is None:
            return PriceDescription(why=_UNPRICED, hint=_own_prices_hint(self.model))
        import genai_prices  # noqa: PLC0415  # it takes 200 ms

        listed = row[1].get_prices(now)
        prices = {ours: _describe_price(getattr(listed, theirs)) for ours, theirs in _LISTED.items()}
        return PriceDescription(
            prices={name: price for name, price in prices.items() if price is not None},
            source=f"genai-prices {genai_prices.__version__}, {row[0].id} {row[1].id}",
            date=_list_date(now.date()),
        )

    def _find(self, now: dt.datetime) -> tuple[Provider, ModelInfo] | None:
        """The row of the list."""
        row = _find_listed(self.url, self.model)
        if row is None:
            return None
        # Some rows price other things alone, such as pictures or hours of speech: they do not make the cost of tokens.
        listed = row[1].get_prices(now)
        return row if listed.input_mtok is not None and listed.output_mtok is not None else None


class FallbackPrices(msgspec.Struct, frozen=True):
    """The prices of models in a row, by their names: a reply costs what the one that gave it takes."""

    by_model: tuple[tuple[str, Pricing | None], ...]

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """The cost of one reply, None where it is unknown.

        A name may stand for several: the same model at other addresses. Then it costs what the dearest of them takes.
        """
        name = usage.model or self.by_model[0][0]
        named = [pricing for model, pricing in self.by_model if model == name]
        costs = [None if pricing is None else pricing.cost(usage, now) for pricing in named]
        known = [each for each in costs if each is not None]
        return max(known) if known and len(known) == len(costs) else None

    def is_known(self, now: dt.datetime) -> bool:
        """Whether the cost of replies is known, whichever model gives them."""
        return all(pricing is not None and pricing.is_known(now) for _, pricing in self.by_model)

    def describe(self, now: dt.datetime) -> PriceDescription:
        """The prices of the first model whose price is not known, else of the first."""
        unknown = [each for each in self.by_model if not is_priced(each[1], now)]
        model, pricing = [*unknown, self.by_model[0]][0]
        return describe_pricing(pricing, model, now)


_LISTED = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "reasoning": "output_reasoning_mtok",
}
"""Our names of prices, and those of the list."""


def describe_pricing(pricing: Pricing | None, model: str, now: dt.datetime) -> PriceDescription:
    """The price of a model in words."""
    if isinstance(pricing, ListPrices | FallbackPrices):
        return pricing.describe(now)
    if not isinstance(pricing, Prices):
        return PriceDescription(why="it is not known", hint=_own_prices_hint(model))
    named = {name: getattr(pricing, name) for name in _LISTED if hasattr(pricing, name)}
    return PriceDescription(
        prices={name: price for name, price in named.items() if price is not None},
        date=pricing.date.isoformat() if pricing.date else "",
    )


def is_priced(pricing: Pricing | None, now: dt.datetime) -> bool:
    """Whether the cost of a model's replies is known."""
    return pricing is not None and pricing.is_known(now)


def load_list() -> None:
    """Import the list, where it is installed, so that no reply waits for that later."""
    _find_listed("", "")


def require_price(pricing: Pricing | None, model: str, now: dt.datetime, *, path: str) -> None:
    """Check that a budget can be held.

    Raises:
        CallerError: The price of the model is not known; the hint says how it becomes known.
    """
    if not is_priced(pricing, now):
        described = describe_pricing(pricing, model, now)
        raise CallerError(f"a budget needs the price of {model}: {described.why}", path=path, hint=described.hint)


def _own_prices_hint(model: str) -> str:
    name = msgspec.json.encode(model).decode()
    return f"write [prices.{name}] with input and output, in dollars a million tokens, into callboard.toml"


@lru_cache(maxsize=1024)  # clients of a gateway make names up
def _find_listed(url: str, model: str) -> tuple[Provider, ModelInfo] | None:
    if not is_extra_installed("prices"):  # to look for what is not there takes 70 µs
        return None
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  # it takes 200 ms

    snapshot = get_snapshot()
    try:
        provider = snapshot.find_provider(None, None, url)
    except LookupError:
        return None
    # Its own look-up by both would keep each name for ever.
    info = provider.find_model(model, all_providers=snapshot.providers)
    return (provider, info) if info is not None else None


@cache
def _list_date(today: dt.date) -> str:
    """The day of the list's newest change of a price: the list is of that day or a later one."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  # it takes 200 ms

    starts = [
        start
        for provider in get_snapshot().providers
        for model in provider.models
        for conditional in (model.prices if isinstance(model.prices, list) else ())
        if (start := getattr(conditional.constraint, "start_date", None)) is not None and start <= today
    ]
    return max(starts).isoformat() if starts else ""


def _describe_price(price: Any) -> float | str | None:
    """A price as a number, or in words where it grows with the input."""
    if price is None:
        return None
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return float(price)
    steps = [f"{float(tier.price):g} above {tier.start} input tokens" for tier in tiers]
    return ", ".join([f"{float(price.base):g}", *steps])
