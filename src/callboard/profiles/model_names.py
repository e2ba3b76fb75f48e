"""Models' names, as people and providers write them.

A name is reduced to what says which model it is, without who serves it or how it is packed.
"""

from __future__ import annotations

import re
from collections.abc import Container

from callboard.errors import CallerError

_COMMAND = "command:"
_PACKING = re.compile(r"[-_.](?:(?:i?q\d\w*|f16|f32|bf16|fp8|fp16|int4|int8|awq|gptq|gguf|mlx)(?:_\w+)*)$")


def model_names(chain: str) -> list[str]:
    """The names in a chain such as `openai:gpt-4o,local:qwen2.5-coder-0.5b`, without the blanks around them.

    A chain that begins with `command:` is one name, whatever is in it. Raises CallerError for an empty name.
    """
    whole = chain.strip()
    names = [whole] if whole.startswith(_COMMAND) else [name.strip() for name in whole.split(",")]
    if not all(names):
        raise CallerError("the model's name is empty", path=chain, hint="write names with commas between them")
    return names


def split_provider(name: str, providers: Container[str]) -> tuple[str, str]:
    """`openai:gpt-4o` is ("openai", "gpt-4o"); a left side that is no provider belongs to the model's name."""
    provider, colon, model = name.partition(":")
    return (provider, model) if colon and provider in providers else ("", name)


def normalise(name: str) -> str:
    """Lower case, without vendor prefix, `:tag` of a size or build, and suffixes of quantisation.

    A tag that tells the size is kept as part of the name: `qwen3-coder:30b` is `qwen3-coder-30b`.
    """
    model = name.strip().lower().replace("\\", "/").rsplit("/", 1)[-1]
    model, colon, tag = model.partition(":")
    if colon and tag and tag != "latest":
        model = f"{model}-{tag}"
    while (shorter := _PACKING.sub("", model)) != model:
        model = shorter
    return model


def matches(pattern: str, model: str) -> bool:
    """Whether a normalised name begins with the pattern, or has it behind a separator."""
    at = model.find(pattern)
    while at >= 0:
        if at == 0 or model[at - 1] in "-_./ ":
            return True
        at = model.find(pattern, at + 1)
    return False
