"""Code blocks in a reply: fenced code, each block for a file.

Laws: parsing is linear in the reply. A fence that does not hold code of a file, such as commands, is not a code block.
A fence inside a string, a comment or a Markdown fence does not end a block.
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
_MARKDOWN: Final = frozenset(("markdown", "md"))
_MAX_LINE: Final = 10_000
"""Characters of the longest line in which strings are sought."""
_STRING: Final = r""""(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'"""
_TRIPLE_QUOTED: Final = re.compile(rf"#.*|(?P<open>\"\"\"|''')|{_STRING}")
_COMMENTED: Final = re.compile(rf"//.*|(?P<open>/\*)|`[^`]*`|{_STRING}")
_PATH_WITHIN: Final = 1000
"""Characters at the end of the line above a fence in which its path is sought."""


class CodeBlock(msgspec.Struct, frozen=True):
    """A block of code."""

    code: str
    path: str = ""
    """The file that the reply names for it, "" if none."""
    suffixes: tuple[str, ...] = ()
    """File suffixes of its language; empty if unknown."""
    is_cut: bool = False
    """The reply ended in the block."""


def parse_code_blocks(reply: str) -> list[CodeBlock]:
    """Return the code blocks of a reply in their order; the last one may be open."""
    blocks: list[CodeBlock] = []
    before = ""
    fence, info, language = "", "", ""
    code: list[str] = []
    # The end mark of the open string or comment, and the number of open fences in Markdown.
    end, depth = "", 0
    lines = reply.split("\n")
    last_ends = {each: at for at, line in enumerate(lines) for each in ('"""', "'''", "*/") if each in line}
    for at, line in enumerate([*lines, None]):
        if not fence:
            if line is not None and (opened := _FENCE.match(line)):
                fence, info, code = opened[1], opened[2].strip(), []
                language, end, depth = _language(info), "", 0
            elif line is not None and line.strip():
                before = line
            continue
        text = (line or "").strip()
        is_fence, is_bare = text.startswith(fence), not text.strip(fence[0])
        if line is not None and not (is_fence and is_bare and not depth and last_ends.get(end, -1) <= at):
            code.append(line)
            if language in _MARKDOWN:
                depth += (-1 if is_bare else 1) * is_fence
            else:
                is_python = ".py" in _SUFFIXES.get(language, (".py",))
                end = _end_of_string(line, end, _TRIPLE_QUOTED if is_python else _COMMENTED)
            continue
        block = _code_block(info, before, code, is_cut=line is None)
        if block is not None:
            blocks.append(block)
        shown = [each for each in code if each.strip()]
        # A path in a fence of its own is for the fence after it.
        fence, before = "", shown[0] if block is None and len(shown) == 1 else ""
    return blocks


def _end_of_string(line: str, end: str, tokens: re.Pattern[str]) -> str:
    """The end mark of the string or comment that is open after a line, "" if none is; `end` is the mark before the line."""
    at = 0
    while len(line) <= _MAX_LINE:
        if end:
            at = line.find(end, at)
            if at < 0:
                break
            # A quote after a backslash is part of the string.
            if line[at - 1 : at] != "\\" or end == "*/":
                at, end = at + len(end), ""
            else:
                at += 1
        elif (token := tokens.search(line, at)) is None:
            break
        else:
            opened = token["open"] or ""
            at, end = token.end(), "*/" if opened == "/*" else opened
    return end


def _language(info: str) -> str:
    """Return the language that a fence names, in lower case."""
    word = re.split(r"[\s:=,{}]+", info)[0].lower()
    return "" if "." in word else word


def _code_block(info: str, before: str, lines: Sequence[str], *, is_cut: bool) -> CodeBlock | None:
    words = re.split(r"[\s:=,{}]+", info)
    language = _language(info)
    path = next((word for word in words if _PATH.fullmatch(word)), "")
    first = next((line for line in lines if line.strip()), "")
    named = _COMMENT.match(first[:_PATH_WITHIN]) or _BARE.match(first[:_PATH_WITHIN])
    if named and (not path or path == named[1]):
        path, lines = named[1], lines[lines.index(first) + 1 :]
    if language in _NOT_CODE or not any(line.strip() for line in lines):
        return None
    if not path:
        path = next(iter(reversed(_PATH.findall(before[-_PATH_WITHIN:]))), "")
    return CodeBlock("\n".join(lines) + "\n", path.removeprefix("./"), _SUFFIXES.get(language, ()), is_cut)


def file_of_block(
    block: CodeBlock,
    files: Collection[str],
    defined: Mapping[str, Collection[str]],
    names: Collection[str],
    new_files: Collection[str] = (),
) -> str:
    """Choose the file for a block: the file that it names, else the file that defines most of its names, else the only
    new file. Return "" if none fits.

    `defined` has the names that files define, `names` the names that the block defines. `new_files` are files that
    the task names and that do not exist yet.
    """
    if block.path:
        if block.path in files:
            return block.path
        for matches in (
            [each for each in files if each.casefold() == block.path.casefold()],
            [each for each in files if each.endswith(f"/{block.path}")],
        ):
            if len(matches) == 1:
                return matches[0]
        if _fits(block, block.path):
            return block.path
    scores = {each: len({*names} & {*defined[each]}) for each in defined if _fits(block, each)}
    best = max(scores, key=lambda each: scores[each], default="")
    if best and scores[best]:
        return best
    new = [each for each in new_files if _fits(block, each)]
    return new[0] if len(new) == 1 else ""


def _fits(block: CodeBlock, path: str) -> bool:
    """Return whether a file of this name may be in the block's language."""
    return not block.suffixes or path.endswith(block.suffixes)
