"""Code that a model writes in words: fenced blocks, each for a file.

Owns the reading of a reply into blocks, and which file a block is for. Knows nothing of how it is put there.
Law: linear in the reply; what is no code of a file is no block.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

_FENCE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^`\n]{0,200})$")
_PATH: Final = re.compile(r"[\w@.-]+(?:/[\w@.-]+)*\.\w{1,8}")
_COMMENT: Final = re.compile(
    r"^\s*(?:#|//|/\*|--|<!--)\s*(?:file(?:name)?:\s*)?([\w@./-]+\.\w{1,8})\s*(?:\*/|-->)?\s*$", re.IGNORECASE
)
_NOT_CODE: Final = frozenset(
    ("bash", "sh", "shell", "console", "text", "txt", "json", "plaintext", "output", "markdown", "md")
)
_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "python": (".py",),
    "py": (".py",),
    "go": (".go",),
    "golang": (".go",),
    "javascript": (".js", ".mjs", ".cjs", ".jsx"),
    "js": (".js", ".mjs", ".cjs", ".jsx"),
    "jsx": (".jsx", ".js"),
    "typescript": (".ts", ".tsx"),
    "ts": (".ts", ".tsx"),
    "rust": (".rs",),
    "java": (".java",),
    "c": (".c", ".h"),
}


class Block(msgspec.Struct, frozen=True):
    """A block of code. `path` is the file that the reply names for it, "" if none; `suffixes` those of its language."""

    code: str
    path: str = ""
    suffixes: tuple[str, ...] = ()


def read_blocks(reply: str) -> list[Block]:
    """The blocks of a reply, in their order; the last one may be open."""
    blocks: list[Block] = []
    before = ""
    fence, info = "", ""
    code: list[str] = []
    for line in [*reply.split("\n"), None]:
        if not fence:
            if line is not None and (opened := _FENCE.match(line)):
                fence, info, code = opened[1], opened[2].strip(), []
            elif line is not None and line.strip():
                before = line
        elif line is None or (line.strip().startswith(fence) and not line.strip().strip(fence[0])):
            block = _block(info, before, code)
            if block is not None:
                blocks.append(block)
            fence, before = "", ""
        else:
            code.append(line)
    return blocks


def _block(info: str, before: str, lines: Sequence[str]) -> Block | None:
    words = re.split(r"[\s:=,{}]+", info)
    language = words[0].lower() if words and "." not in words[0] else ""
    if language in _NOT_CODE or not any(line.strip() for line in lines):
        return None
    path = next((word for word in words if _PATH.fullmatch(word)), "")
    if not path and (named := _COMMENT.match(lines[0])):
        path, lines = named[1], lines[1:]
    if not path:
        path = next(iter(reversed(_PATH.findall(before))), "")
    return Block("\n".join(lines) + "\n", path.removeprefix("./"), _SUFFIXES.get(language, ()))


def place_of(
    block: Block, files: Collection[str], defined: Mapping[str, Collection[str]], names: Collection[str]
) -> str:
    """The file that a block is for: the one that it names; else, of those whose definitions are known, the one that
    defines most of the block's `names`. "" where none does.
    """
    if block.path:
        if block.path in files:
            return block.path
        ending = [each for each in files if each.endswith(f"/{block.path}")]
        if len(ending) == 1:
            return ending[0]
        if not block.suffixes or block.path.endswith(block.suffixes):
            return block.path
    fitting = [each for each in defined if not block.suffixes or each.endswith(block.suffixes)]
    scores = {each: len({*names} & {*defined[each]}) for each in fitting}
    best = max(scores, key=lambda each: scores[each], default="")
    return best if best and scores[best] else ""
