"""A name gives the mode that the table says."""

import pytest

from callboard.adapters import ToolCallingMode, get_adapter, mode_of


@pytest.mark.parametrize(
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
    ],
)
def test_the_table(model, mode):
    assert mode_of(model) is ToolCallingMode(mode)


@pytest.mark.parametrize("mode", ["json", "", None, "AUTO"])
def test_a_mode_that_there_is_not(mode):
    with pytest.raises(ValueError, match=r"^Unsupported tool calling mode: .*; there are auto, native, structured"):
        get_adapter("gpt-4o", mode)
