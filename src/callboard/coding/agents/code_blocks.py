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
_BARE: Final = re.compile(r"^\s*(?:file(?:name)?:\s*)?((?:[\w@.-]+/)+[\w@.-]+\.\w{1,8}):?\s*$", re.IGNORECASE)
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
    """A block of code. `path` is the file that the reply names for it, "" if none; `suffixes` those of its language.

    `is_cut` says that the reply ended in it.
    """

    code: str
    path: str = ""
    suffixes: tuple[str, ...] = ()
    is_cut: bool = False


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
            block = _block(info, before, code, is_cut=line is None)
            if block is not None:
                blocks.append(block)
            said = [each for each in code if each.strip()]
            # A path in a fence of its own is for the fence after it.
            fence, before = "", said[0] if block is None and len(said) == 1 else ""
        else:
            code.append(line)
    return blocks


def _block(info: str, before: str, lines: Sequence[str], *, is_cut: bool) -> Block | None:
    words = re.split(r"[\s:=,{}]+", info)
    language = words[0].lower() if words and "." not in words[0] else ""
    path = next((word for word in words if _PATH.fullmatch(word)), "")
    first = next((line for line in lines if line.strip()), "")
    named = _COMMENT.match(first) or _BARE.match(first)
    if named and (not path or path == named[1]):
        path, lines = named[1], lines[lines.index(first) + 1 :]
    if language in _NOT_CODE or not any(line.strip() for line in lines):
        return None
    if not path:
        path = next(iter(reversed(_PATH.findall(before))), "")
    return Block("\n".join(lines) + "\n", path.removeprefix("./"), _SUFFIXES.get(language, ()), is_cut)


def place_of(
    block: Block,
    files: Collection[str],
    defined: Mapping[str, Collection[str]],
    names: Collection[str],
    wanted: Collection[str] = (),
) -> str:
    """The file that a block is for: the one that it names; else, of those whose definitions are known, the one that
    defines most of the block's `names`; else the one that is `wanted`, if it is one. "" where there is none.
    """
    if block.path:
        if block.path in files:
            return block.path
        for alike in (
            [each for each in files if each.casefold() == block.path.casefold()],
            [each for each in files if each.endswith(f"/{block.path}")],
        ):
            if len(alike) == 1:
                return alike[0]
        if _fits(block, block.path):
            return block.path
    scores = {each: len({*names} & {*defined[each]}) for each in defined if _fits(block, each)}
    best = max(scores, key=lambda each: scores[each], default="")
    if best and scores[best]:
        return best
    new = [each for each in wanted if _fits(block, each)]
    return new[0] if len(new) == 1 else ""


def _fits(block: Block, path: str) -> bool:
    """Whether a path is one of the block's language."""
    return not block.suffixes or path.endswith(block.suffixes)
