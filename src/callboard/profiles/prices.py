"""Prices of tokens in US dollars, from the list in genai-prices, and their descriptions.

The list (extra `prices`) is data inside its package, and nothing here ever downloads a newer one. Its import takes 200
ms, so it is imported on the first lookup, or by `load_list` before a server starts. The address of the server decides
who charges for a reply. The same model at another address has no price until somebody configures one.

Laws: an unknown cost is None, never 0. Contradictory counts, which a provider may send, never cost less than consistent
counts.
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
    """Prices per million tokens, with their source. If there are no prices, `why` says what is missing."""

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
        """Return the cost of one reply at a time, or None if it is unknown."""
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
        """Describe the prices."""
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
        """Return the row of the list."""
        row = _find_listed(self.url, self.model)
        if row is None:
            return None
        # Some rows have only prices of other things, such as pictures or hours of speech, and no price of tokens.
        listed = row[1].get_prices(now)
        return row if listed.input_mtok is not None and listed.output_mtok is not None else None


class FallbackPrices(msgspec.Struct, frozen=True):
    """The prices of several fallback models, by name: the model that replied sets the price."""

    by_model: tuple[tuple[str, Pricing | None], ...]

    def cost(self, usage: Usage, now: dt.datetime) -> float | None:
        """Return the cost of one reply, or None if it is unknown.

        Several entries may have the same name: the same model at several addresses. Then the highest price counts.
        """
        name = usage.model or self.by_model[0][0]
        named = [pricing for model, pricing in self.by_model if model == name]
        costs = [None if pricing is None else pricing.cost(usage, now) for pricing in named]
        known = [each for each in costs if each is not None]
        return max(known) if known and len(known) == len(costs) else None

    def is_known(self, now: dt.datetime) -> bool:
        """Whether the cost of replies is known for all models."""
        return all(pricing is not None and pricing.is_known(now) for _, pricing in self.by_model)

    def describe(self, now: dt.datetime) -> PriceDescription:
        """Describe the prices of the first model with an unknown price, otherwise of the first model."""
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
"""Our names of prices, with the names in the list."""


def describe_pricing(pricing: Pricing | None, model: str, now: dt.datetime) -> PriceDescription:
    """Describe the price of a model."""
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
    """Import the list if it is installed, so that no reply has to wait for it later."""
    _find_listed("", "")


def require_price(pricing: Pricing | None, model: str, now: dt.datetime, *, path: str) -> None:
    """Check that a budget can be enforced.

    Raises:
        CallerError: The price of the model is unknown; the hint says how to set it.
    """
    if not is_priced(pricing, now):
        described = describe_pricing(pricing, model, now)
        raise CallerError(f"a budget needs the price of {model}: {described.why}", path=path, hint=described.hint)


def _own_prices_hint(model: str) -> str:
    name = msgspec.json.encode(model).decode()
    return f"write [prices.{name}] with input and output, in dollars a million tokens, into callboard.toml"


@lru_cache(maxsize=1024)  # clients of a gateway invent names
def _find_listed(url: str, model: str) -> tuple[Provider, ModelInfo] | None:
    if not is_extra_installed("prices"):  # a failed import takes 70 µs each time
        return None
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  # it takes 200 ms

    snapshot = get_snapshot()
    try:
        provider = snapshot.find_provider(None, None, url)
    except LookupError:
        return None
    # The package's own lookup by name and address would cache each name forever.
    info = provider.find_model(model, all_providers=snapshot.providers)
    return (provider, info) if info is not None else None


@cache
def _list_date(today: dt.date) -> str:
    """Return the day of the newest change of a price: the list is from that day or later."""
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
    """Return a price as a number, or as text if it grows with the input."""
    if price is None:
        return None
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return float(price)
    steps = [f"{float(tier.price):g} above {tier.start} input tokens" for tier in tiers]
    return ", ".join([f"{float(price.base):g}", *steps])
