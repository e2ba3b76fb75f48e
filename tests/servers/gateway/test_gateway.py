from __future__ import annotations

from collections import Counter
from random import Random

from tests.tables import table

from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.gateway import ModelRouter


def routes(*backends, draw=lambda: 0.5):
    return ModelRouter([BackendSettings(url="http://x", **each) for each in backends], draw)


@table(
    ("backend", "model", "found"),
    [
        ({}, "anything", "anything"),
        ({"models": ["gpt-*"]}, "gpt-4o", "gpt-4o"),
        ({"models": ["gpt-*"]}, "GPT-4O", "GPT-4O"),
        ({"models": ["gpt-*"]}, "my-gpt-4o", None),
        ({"models": ["gpt-?"]}, "gpt-45", None),
        ({"models": ["a", "org/*"]}, "org/x:free", "org/x:free"),
        ({"models": ["a.c"]}, "abc", None),  # a dot is a dot
        ({"models": []}, "x", None),
        ({"models": [], "model_map": {"fast": "qwen"}}, "fast", "qwen"),
        ({"models": [], "model_map": {"fast": "qwen"}}, "qwen", None),
        ({"models": ["*"], "model_map": {"fast": "qwen"}}, "slow", "slow"),
        ({"models": ["x"]}, "x\n", None),
        ({"models": ["gemini-2.5-flash*"]}, "gemini-2.5-flash-lite", "gemini-2.5-flash-lite"),
        ({"models": ["gemini-2.5-flash*"]}, "gemini-2.5-flash/x", None),  # a star matches no slash
        ({"models": ["models/*"]}, "models/x/y", None),
        ({"models": ["models/?"]}, "models//", None),
        ({"models": ["*/*"]}, "org/x", "org/x"),
        ({"models": ["*/*"]}, "x", None),
        ({"models": ["[a/b]x"]}, "/x", None),
        ({"models": ["*"]}, "org/team/x", "org/team/x"),  # but all names are all names
        ({"models": ["**"]}, "org/x", "org/x"),
        ({"models": [""]}, "x", None),
    ],
)
def test_a_model_leads_to_a_backend(backend, model, found):
    expected = [] if found is None else [(0, found)]
    assert routes({**backend, "models": tuple(backend.get("models", ("*",)))}).backends_for(model) == expected


def test_each_backend_has_its_own_name_for_a_model():
    found = routes(
        {"model_map": {"fast": "qwen"}}, {"model_map": {"fast": "llama"}}, {"models": ("other",)}
    ).backends_for("fast")
    assert sorted(found) == [(0, "qwen"), (1, "llama")]


def test_names_that_maps_add():
    assert routes({"model_map": {"a": "b", "c": "d"}}, {"model_map": {"e": "f"}}, {}).mapped_names() == ["a", "c", "e"]


def test_weights_are_shares_of_the_first_place():
    table = routes({"weight": 3.0}, {"weight": 1.0}, {"weight": 0.0}, draw=Random(7).random)
    orders = [[place for place, _ in table.backends_for("m")] for _ in range(4000)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert all(order[2] == 2 for order in orders)  # weight 0 is asked last
    first = Counter(order[0] for order in orders)
    assert 0.72 < first[0] / 4000 < 0.78


@table("drawn", [0.0, 1.0, 5e-324])
def test_any_draw_and_any_weight(drawn):
    weights = [0.0, 1e-9, 1.0, 1e9, float("inf"), 0.0]
    table = routes(*[{"weight": weight} for weight in weights], draw=lambda: drawn)
    order = [place for place, _ in table.backends_for("m")]
    assert sorted(order) == list(range(6))
    assert order[-2:] == [0, 5]  # in the order in which they are written


def test_a_pattern_of_many_stars_costs_no_time():
    assert routes({"models": ("*a*b*c*d*e*f*g*h*",)}).backends_for("a" * 100_000) == []
