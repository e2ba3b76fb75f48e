"""Names of models, as people and providers write them.

A name is reduced to the part that identifies the model, without its provider and its packaging.
"""

from __future__ import annotations

import re
from collections.abc import Container

from callboard.errors import CallerError

_COMMAND = "command:"
_PACKING = re.compile(r"[-_.](?:(?:i?q\d\w*|f16|f32|bf16|fp8|fp16|int4|int8|awq|gptq|gguf|mlx)(?:_\w+)*)$")


def model_names(chain: str) -> list[str]:
    """Return the names in a `chain` such as `openai:gpt-4o,local:qwen2.5-coder-0.5b`, without surrounding blanks.

    A chain that begins with `command:` is one name, whatever it contains. Raises CallerError for an empty name.
    """
    whole = chain.strip()
    names = [whole] if whole.startswith(_COMMAND) else [name.strip() for name in whole.split(",")]
    if not all(names):
        raise CallerError("the model's name is empty", path=chain, hint="write names with commas between them")
    return names


def split_provider(name: str, providers: Container[str]) -> tuple[str, str]:
    """Return ("openai", "gpt-4o") for the `name` `openai:gpt-4o`.

    If it is not in `providers`, it is part of the name.
    """
    provider, colon, model = name.partition(":")
    return (provider, model) if colon and provider in providers else ("", name)


def normalise(name: str) -> str:
    """Return the `name` in lower case, without vendor prefix, quantisation suffix, and the `:tag` of a build.

    A tag with the size stays part of the name: `qwen3-coder:30b` becomes `qwen3-coder-30b`.
    """
    model = name.strip().lower().replace("\\", "/").rsplit("/", 1)[-1]
    model, colon, tag = model.partition(":")
    if colon and tag and tag != "latest":
        model = f"{model}-{tag}"
    while (shorter := _PACKING.sub("", model)) != model:
        model = shorter
    return model


def matches(pattern: str, model: str) -> bool:
    """Return whether the normalised name `model` begins with the `pattern`, or has it after a separator."""
    at = model.find(pattern)
    while at >= 0:
        if at == 0 or model[at - 1] in "-_./ ":
            return True
        at = model.find(pattern, at + 1)
    return False
