"""Find the places in code that stand for code which is left out, such as `# ... rest of the class unchanged`.

Runs in the worker process alone. A comment counts if it begins with an ellipsis, or if it says that something stays
and says nothing else. After code on the same line, a comment counts only if it begins with an ellipsis.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from callboard.coding.outlines.values import Gap

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment"})
STUBS: Final = frozenset({"pass_statement", "ellipsis", "string", *COMMENTS})
"""Nodes that do nothing; an expression statement counts as its expression."""
_LONGEST: Final = 300
"""Bytes of the longest comment that can stand for code."""
_MAX_STUB: Final = 5
"""Comments and statements of the longest body that does nothing."""
_ELLIPSIS: Final = ("...", "\u2026")
_MARKS: Final = "#/*-=!<>[](){}\"' \t\r\n"
_CODE: Final = (
    r"(?:code|files?|functions?|methods?|class(?:es)?|module|imports?|tests?|logic|body|implementations?|definitions?"
    r"|program|script|component|fields?|attributes?|propert(?:y|ies)|routes?|handlers?|helpers?|members?|contents?)\b"
)
_STAYS: Final = (
    r"\b(?:rest|remainder|remaining|existing|unchanged|unmodified|unaltered|untouched|omitted|elided|skipped|truncated"
    r"|brevity|as (?:it )?(?:is|was)|(?:as|like|same as) (?:before|above)|(?:stays?|remains?|is|are) the same"
    r"|no (?:other )?changes?|not (?:changed|shown|modified)|nothing changes)\b"
)
_LEFT_OUT: Final = re.compile(
    rf"{_STAYS}|\b(?:others?|previous|original|your|same|more|keep)\b(?=.*\b{_CODE})", re.IGNORECASE
)
_WORD: Final = re.compile(
    rf"{_CODE}|(?:rest|remain\w*|existing|un(?:changed|modified|altered|touched)|omitted|elided|skipped|truncated|for"
    r"|brevity|as|it|is|was|are|were|like|same|before|above|below|here|the|a|an|of|all|any|my|your|our|this|that|these"
    r"|and|or|in|to|from|with|no|not|others?|change[sd]?|shown|modified|nothing|else|stays?|previous|original|more|keep"
    r"|kept|exactly|go|goes|will|be|current|everything|left|out|etc)\b",
    re.IGNORECASE,
)


def find_gaps(tree: Tree) -> list[Gap]:
    """The gaps of a text in their order."""
    import tree_sitter  # noqa: PLC0415  # it is installed, since there is a tree

    language = tree.language
    kinds = [f"({kind}) @gap" for kind in sorted(COMMENTS) if language.id_for_node_kind(kind, True)]
    if language.id_for_node_kind("ellipsis", True):
        kinds += ["(expression_statement [(ellipsis) (string)] @gap)", "(list (ellipsis) @gap)"]
    query = tree_sitter.Query(language, " ".join(kinds))
    nodes = tree_sitter.QueryCursor(query).captures(tree.root_node).get("gap", [])
    data = tree.root_node.text or b""
    return sorted([Gap(node.start_point.row + 1, text.strip()) for node in nodes if (text := _gap_text(node, data))])


def is_stub_body(body: Node) -> bool:
    """Whether a body does nothing."""
    return body.named_child_count <= _MAX_STUB and all(map(_does_nothing, body.named_children))


def _does_nothing(node: Node) -> bool:
    if node.type == "expression_statement":
        return all(child.type in STUBS for child in node.named_children)
    return node.type in STUBS


def _gap_text(node: Node, whole: bytes) -> str:
    """The text of a gap, "" for any other node."""
    data = node.text or b""
    text = data[:_LONGEST].decode("utf-8", "replace")
    if node.type == "ellipsis":
        statement = node.parent
        body = statement.parent if statement is not None and statement.type == "expression_statement" else None
        # The only statement of a function: it may do nothing.
        is_body = body is not None and body.type == "block" and is_stub_body(body)
        return "" if is_body else text
    words = text.strip(_MARKS)
    if words.startswith(_ELLIPSIS):
        return text
    if node.type == "string" or len(data) > _LONGEST or _LEFT_OUT.search(words) is None:
        return ""
    before = whole[whole.rfind(b"\n", 0, node.start_byte) + 1 : node.start_byte].strip()
    if before not in (b"", b"pass", b"...") and not before.endswith(b"{"):
        return ""
    unknown = sum(_WORD.fullmatch(word) is None for word in re.findall(r"\w+", words))
    allowed = 4 if words.endswith(_ELLIPSIS) else 1 if len(re.findall(_STAYS, words, re.IGNORECASE)) > 1 else 0
    return text if unknown <= allowed else ""
