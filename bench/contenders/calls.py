"""The call that parsers of dialects read, how nine dialects spell it, and what came of it.

Its content begins and ends with something: white space at the edges of a value is another question than its cost.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Call: TypeAlias = tuple[str, Mapping[str, Any] | None]
"""A tool's name and the arguments; None where they are no JSON."""

NAME = "write_file"
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
_LINES = """\
def merge(left, right, limit=10):
    found = [each for each in left if each not in right]
    while found and len(found) < limit:
        found.append({"key": left[0], "path": "src/a.py"})  # what is new
    return found


"""


def content(size: int) -> str:
    """So many characters of code, the last of them a comment."""
    return (_LINES * (size // len(_LINES))).ljust(size, "#")


def arguments(size: int) -> dict[str, str]:
    return {"path": "a.py", "content": content(size)}


def _json(size: int) -> str:
    return json.dumps(arguments(size))


def _wide(text: str) -> str:
    """With the bars of DeepSeek's tokens; the content has none."""
    return text.replace("|", "\uff5c")


SPELLED: Mapping[str, Callable[[int], str]] = {
    "hermes": lambda size: f'<tool_call>\n{{"name": "{NAME}", "arguments": {_json(size)}}}\n</tool_call>',
    "qwen3_coder": lambda size: (
        f"<tool_call>\n<function={NAME}>\n<parameter=path>\na.py\n</parameter>\n"
        f"<parameter=content>\n{content(size)}\n</parameter>\n</function>\n</tool_call>"
    ),
    "glm47": lambda size: (
        f"<tool_call>{NAME}<arg_key>path</arg_key><arg_value>a.py</arg_value>"
        f"<arg_key>content</arg_key><arg_value>{content(size)}</arg_value></tool_call>"
    ),
    "deepseek_v31": lambda size: _wide(
        f"<|tool▁calls▁begin|><|tool▁call▁begin|>{NAME}<|tool▁sep|>{_json(size)}<|tool▁call▁end|><|tool▁calls▁end|>"
    ),
    "deepseek_v32": lambda size: _wide(
        f'<|DSML|function_calls>\n<|DSML|invoke name="{NAME}">\n'
        '<|DSML|parameter name="path" string="true">a.py</|DSML|parameter>\n'
        f'<|DSML|parameter name="content" string="true">{content(size)}</|DSML|parameter>\n'
        "</|DSML|invoke>\n</|DSML|function_calls>"
    ),
    "kimi_k2": lambda size: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{NAME}:0<|tool_call_argument_begin|>{_json(size)}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "minimax_m2": lambda size: (
        f'<minimax:tool_call>\n<invoke name="{NAME}">\n<parameter name="path">a.py</parameter>\n'
        f'<parameter name="content">{content(size)}</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "pythonic": lambda size: f'[{NAME}(path="a.py", content={content(size)!r})]',
    "llama3_json": lambda size: f'{{"name": "{NAME}", "parameters": {_json(size)}}}',
}
"""As the models' own templates do."""

CONTROL = (
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_tag|>", _wide("|DSML|")),
    *map(_wide, ("<|tool▁calls▁begin|>", "<|tool▁calls▁end|>", "<|tool▁sep|>")),
    *map(_wide, ("<|tool▁call▁begin|>", "<|tool▁call▁end|>")),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
)
"""What is one token to those models."""
_CONTROL = re.compile(f"({'|'.join(map(re.escape, CONTROL))})")


def cut(text: str, length: int = 4) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]


def tokens(text: str) -> list[str]:
    """The text cut, with what is one token whole, as it comes from a model."""
    return [token for piece in _CONTROL.split(text) for token in ([piece] if piece in CONTROL else cut(piece))]


def folded(pieces: Iterable[tuple[int, str | None, str | None]]) -> list[Call]:
    """The calls that are streamed as an index, a name and a piece of the arguments' JSON."""
    names: dict[int, str] = {}
    texts: dict[int, list[str]] = {}
    for index, name, text in pieces:
        names.setdefault(index, name or "")
        texts.setdefault(index, []).append(text or "")
    return [(names[index], _parsed("".join(texts[index]))) for index in names]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
