"""A name gives the mode that the table says."""

import pytest
from tests.tables import table

from callboard.adapters import ToolCallingMode, get_adapter, mode_of
from callboard.errors import CallerError


@table(
    ("model", "mode"),
    [
        ("GPT-4o", "structured"),
        ("  o3-mini ", "structured"),
        ("azure/o1", "structured"),
        ("openai:gpt-4o", "structured"),
        ("openai/gpt-4o", "native"),
        ("OpenAI/GPT-OSS-20b", "structured"),
        ("openai:gpt-4-turbo", "native"),
        ("mistralai/Mistral-7B-Instruct", "native"),
        ("Mistral-7B-Instruct", "validated"),
        ("codellama", "native"),
        ("llama3:8b", "native"),
        ("local:qwen2.5-coder-0.5b", "native"),
        ("somebody/phi-4-Q4_K_M.gguf", "validated"),
        ("", "validated"),
        ("  ", "validated"),
        ("openai:", "validated"),
    ],
)
def test_the_table(model, mode):
    assert mode_of(model) is ToolCallingMode(mode)


@table("mode", ["json", "", None, "AUTO"])
def test_a_mode_that_there_is_not(mode):
    with pytest.raises(ValueError, match=r"^Unsupported tool calling mode: .*; there are auto, native, structured"):
        get_adapter("gpt-4o", mode)


@table(
    ("model", "mode"),
    [
        ("gpt-5", "native"),
        ("openai:gpt-5-mini", "native"),
        ("o4-mini", "native"),
        ("x-ai/grok-4", "native"),
        ("kimi-k2", "native"),
        ("moonshotai/Kimi-K2-Instruct", "native"),
        ("command-r", "native"),
        ("openai:something-new", "structured"),
        ("command:something", "validated"),
    ],
)
def test_the_profile_says_what_the_table_does_not_know(model, mode):
    assert mode_of(model) is ToolCallingMode(mode)


@table("model", [None, 5, b"gpt-4o", ["gpt-4o"]])
def test_what_is_no_name_of_a_model_is_refused(model):
    with pytest.raises(CallerError, match=r"is not a model's name; give one such as 'gpt-4o'$"):
        get_adapter(model)
