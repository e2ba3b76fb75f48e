"""`callboard explain`: how Callboard asks a model for calls, and why."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from callboard.cli import complete
from callboard.cli.options import Json, Mode
from callboard.cli.settings import settings_here
from callboard.core import EFFORTS, Controls, Request, UserCanister
from callboard.modes import Plan, make_plan
from callboard.profiles import Examination, Resolution, normalise, resolve
from callboard.profiles.prices import PriceDescription, describe_pricing
from callboard.providers.adapt_request import adapt_body, adapt_request, encode_request
from callboard.providers.count_tokens import describe_count
from callboard.text.display import display
from callboard.wires import get_wire


def explain(
    model: Annotated[
        str,
        typer.Argument(
            help="A model's name, such as openai:gpt-4o.", show_default=False, autocompletion=complete.models
        ),
    ],
    mode: Mode = "",
    as_json: Json = False,
) -> None:
    """Show how Callboard asks a model for calls, and the source of each fact."""
    settings = settings_here(
        mode=mode
    )  # as `callboard run` reads them: a mode in a file or a variable holds for all models
    resolution = resolve(model, settings.profile(model))
    url = settings.base_url or os.environ.get(resolution.profile.url_variable or "-", "")
    decided = make_plan(resolution, settings.mode, base_url=url)
    facts = {fact: getattr(resolution.profile, fact) for fact in resolution.sources}
    tokens, tokens_why = describe_count(resolution)
    why = resolution.mode_reason
    if settings.mode:
        why = "asked for" if mode else f"set by {settings.sources['mode']}"
    if as_json:
        described = {
            "name": model,
            "provider": resolution.provider,
            "model": resolution.model,
            "normalised": normalise(resolution.model),
            "mode": decided.mode.name,
            "why": why,
            "dialect": decided.dialect.name,
            "watched": decided.watched.name if decided.watched else None,
            "watched_why": _watch_reason(decided, resolution),
            "tokens": tokens,
            "tokens_why": tokens_why,
            "thinking": {effort: _encode_thinking(effort, resolution) for effort in EFFORTS},
            "price": msgspec.to_builtins(_price(decided, resolution)),
            "examined": msgspec.to_builtins(resolution.examined),
            "facts": {fact: _make_fact(resolution, fact, msgspec.to_builtins(value)) for fact, value in facts.items()},
        }
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return
    typer.echo(f"model    {resolution.model} (matched as {normalise(resolution.model)})")
    typer.echo(f"provider {resolution.provider or 'none named'}")
    typer.echo(f"mode     {decided.mode.name}: {display(why)}")
    typer.echo(f"dialect  {decided.dialect.name}: how the model writes calls if the tools are in the prompt")
    typer.echo(f"watched  {display(_describe_watched(decided, resolution))}")
    typer.echo(f"tokens   {tokens}: {tokens_why}")
    typer.echo(f"thinking {display(_describe_thinking(resolution))}")
    typer.echo(f"price    {display(_describe_price(_price(decided, resolution)))}")
    if resolution.examined is not None:
        typer.echo(f"examined {_describe_examined(resolution.examined)}")
    typer.echo("facts")
    width = max(map(len, facts))
    for fact, value in facts.items():
        source = resolution.sources[fact] if fact == "watch" else resolution.known_from(fact)  # shown above
        typer.echo(f"  {fact:<{width}} {msgspec.to_builtins(value)!r:<29} {display(source)}")


def _describe_thinking(resolution: Resolution) -> str:
    """Describe what is sent to think and not to think, or for the effort of the settings."""
    efforts = [resolution.profile.effort] if resolution.profile.effort else ["none", "high"]
    return "; ".join([f"{each} sends {json.dumps(_encode_thinking(each, resolution))}" for each in efforts])


def _encode_thinking(effort: str, resolution: Resolution) -> dict[str, Any]:
    """Return the fields that an effort adds to a request, with the instructions that it changes."""
    facts = resolution.profile

    def encode(effort: str | None) -> dict[str, Any]:
        request = Request(resolution.model, (UserCanister(""),), controls=Controls(effort=effort))
        return adapt_body(encode_request(get_wire(facts.wire), adapt_request(request, facts)[0], facts).body, facts)

    plain = encode(None)
    return {field: value for field, value in encode(effort).items() if plain.get(field) != value}


def _price(decided: Plan, resolution: Resolution) -> PriceDescription:
    price = describe_pricing(decided.prices, resolution.model, datetime.now(UTC))
    if price.source or not price.prices:
        return price
    return msgspec.structs.replace(price, source=resolution.sources["prices"])


def _describe_price(price: PriceDescription) -> str:
    if not price.prices:
        return f"{price.why}; {price.hint}"
    if not any(price.prices.values()):
        return f"free ({price.source})"
    named = "; ".join(
        [f"{name} ${each if isinstance(each, str) else f'{each:g}'}" for name, each in price.prices.items()]
    )
    return f"a million tokens: {named} ({price.source}{f', as of {price.date}' if price.date else ', no date'})"


def _make_fact(resolution: Resolution, fact: str, value: Any) -> dict[str, Any]:
    fact_row = {"value": value, "source": resolution.sources[fact]}
    return fact_row | ({"evidence": resolution.evidence[fact]} if fact in resolution.evidence else {})


def _describe_examined(examined: Examination) -> str:
    """Describe the examined backend, escaped on one line: the file may be untrusted."""
    version = f" ({examined.version})" if examined.version else ""
    date = f", {examined.date}" if examined.date else ""
    return display(f"by callboard doctor: {examined.url}{version}{date}")


def _describe_watched(decided: Plan, resolution: Resolution) -> str:
    watched = (
        f"{decided.watched.name}: calls that the text is searched for"
        if decided.watched
        else "nothing: the text is not searched"
    )
    return f"{watched} ({_watch_reason(decided, resolution)})"


def _watch_reason(decided: Plan, resolution: Resolution) -> str:
    if decided.watched is None or decided.watched.name == ", ".join(resolution.profile.watched):
        return resolution.watch_reason
    return f"the mode {decided.mode.name} asks for it"
