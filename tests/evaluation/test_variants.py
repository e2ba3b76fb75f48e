"""Variants as a person writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import CallerError
from callboard.evaluation.variants import MAX_VARIANTS, PRESETS, make_variants

MODEL = "local:qwen2.5-coder-1.5b"


def test_without_a_word_the_model_is_asked_as_callboard_asks_by_itself():
    (variant,) = make_variants(MODEL, [])
    assert (variant.name, variant.facts) == ("default", {})


def test_every_combination_of_alternatives_is_a_variant():
    variants = make_variants(MODEL, ["mode=native|validated dialect=json|hermes"])
    assert [each.name for each in variants] == [
        "mode=native dialect=json",
        "mode=native dialect=hermes",
        "mode=validated dialect=json",
        "mode=validated dialect=hermes",
    ]
    assert variants[1].facts == {"mode": "native", "dialect": "hermes"}


def test_presets_and_facts_go_together():
    (variant,) = make_variants(MODEL, ["native max_tokens=64"])
    assert variant.facts == {"mode": "native", "max_tokens": 64}


def test_the_matrix_has_no_two_variants_that_ask_alike():
    names = [each.name for each in make_variants(MODEL, ["all"])]
    assert names[0] == "default"
    assert "native" not in names, "as this model is asked anyway"
    assert "validated" in names
    assert names == [each for each in PRESETS if each in names]
    twice = make_variants(MODEL, ["native", "mode=native", "native|mode=native"])
    assert [each.name for each in twice] == ["native"]


def test_what_the_user_knows_of_the_model_holds_beneath():
    assert len(make_variants(MODEL, ["default", "native"], {"mode": "native"})) == 1


@table(
    ("text", "message"),
    [
        ("natiev", "did you mean 'native'"),
        ("colour=red", "no fact 'colour'"),
        ("mode=loud", "profile of"),
        ("dialect=none_such", "none_such"),
        (" ", "a variant is empty"),
        ("mode=" + "|".join(["native"] * (MAX_VARIANTS + 1)), "too many"),
    ],
)
def test_a_mistake_is_refused(text, message):
    with pytest.raises(CallerError) as refused:
        make_variants(MODEL, [text])
    assert message in str(refused.value)


@given(st.lists(st.text(max_size=40), max_size=4))
def test_whatever_is_written_is_variants_or_a_mistake(texts):
    try:
        variants = make_variants(MODEL, texts)
    except CallerError:
        return
    assert 1 <= len(variants) <= MAX_VARIANTS


def test_the_page_has_the_presets():
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    for name, facts in PRESETS.items():
        row = f"| `{name}` | "
        assert row in page
        line = page[page.index(row) :].partition("\n")[0]
        assert all(f"`{fact}={value}`" in line.replace('"', "") for fact, value in facts.items() if value is not True)
