from __future__ import annotations

import json

import pytest

from callboard.errors import CallerError


@pytest.mark.parametrize(
    ("model", "mode", "dialect"),
    [
        # Seed 001's table of models, as far as its modes go.
        ("openai:gpt-4o", "native", None),
        ("claude-3-5-sonnet", "native", None),
        ("llama-3-70b", "native", "json"),
        ("mistral-7b", "validated", "json"),
        ("local:qwen2.5-coder-0.5b", "native", "json"),
        ("local:smollm2-135m", "structured", "action"),
        ("openai:mystery", "structured", "action"),
        ("mystery", "validated", "json"),
    ],
)
def test_how_models_are_asked(invoke, model, mode, dialect):
    result = invoke("explain", model, "--json")
    told = json.loads(result.stdout)
    assert (told["name"], told["mode"], told["dialect"]) == (model, mode, dialect)
    assert all({"value", "source"} == each.keys() for each in told["facts"].values())


def test_every_fact_has_its_source(invoke):
    told = json.loads(invoke("explain", "local:qwen2.5-coder-0.5b", "--json").stdout)
    assert (told["provider"], told["model"], told["normalised"]) == (
        "local",
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-0.5b",
    )
    assert told["why"] == "the endpoint offers tools (default), and the model uses them (family qwen)"
    assert told["facts"]["uses_tools"] == {"value": True, "source": "family qwen"}
    assert told["facts"]["results"] == {"value": "prose", "source": "model qwen2.5-coder-0.5b"}
    assert told["facts"]["temperature"] == {"value": 0.0, "source": "endpoint local"}
    assert told["facts"]["context"] == {"value": 0, "source": "default"}


def test_for_people(invoke):
    lines = invoke("explain", "unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M").stdout.splitlines()
    assert lines[:5] == [
        "model    unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M (matched as qwen3-coder-30b)",
        "provider none named",
        "mode     native: the endpoint offers tools (default), and the model uses them (family qwen)",
        "dialect  json",
        "facts",
    ]
    assert "  uses_tools   True                          family qwen" in lines


def test_a_mode_that_was_asked_for(invoke):
    told = json.loads(invoke("explain", "openai:gpt-4o", "--mode", "parsed", "--json").stdout)
    assert (told["mode"], told["why"], told["dialect"]) == ("parsed", "asked for", "json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt-4o", "--mode", "magic"], "no mode 'magic'; there are native, structured, validated, parsed"),
        (["openai:"], "openai:: the model's name is empty; write it as provider:model or model"),
    ],
)
def test_what_a_person_gets_wrong(invoke, arguments, message):
    result = invoke("explain", *arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, CallerError)
    assert str(result.exception) == message
