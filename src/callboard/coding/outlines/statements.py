"""List the statements of a syntax tree, with the names that they define or import.

Runs in the worker process alone. Law: recursion ends after `_DEPTH` levels of classes, however deep the text is nested.

A gap marks omitted code, such as `# ... rest of the class unchanged`. A comment counts if it begins with an ellipsis,
or if it says only that something stays. After code on the same line, a comment must begin with an ellipsis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from callboard.coding.outlines.languages import GUARD, Gap, Language, Statement

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
    """Return the gaps of a text in their order."""
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
    """Return whether a body does nothing."""
    return body.named_child_count <= _MAX_STUB and all(map(_does_nothing, body.named_children))


def _does_nothing(node: Node) -> bool:
    if node.type == "expression_statement":
        return all(child.type in STUBS for child in node.named_children)
    return node.type in STUBS


def _gap_text(node: Node, whole: bytes) -> str:
    """Return the text of a gap, "" for any other node."""
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


MAX_STATEMENTS: Final = 100_000
"""Statements at the top of a text; a text with more counts as one without any."""
_DEPTH: Final = 4
"""Levels of classes whose members are listed."""
_ATTACHED: Final = frozenset({"decorator", "attribute_item"})
"""Nodes that belong to the statement below them."""
_BINDINGS: Final = {
    "assignment": "left",
    "assignment_expression": "left",
    "variable_declarator": "name",
    "type_alias_statement": "left",
    "field_definition": "property",
    "public_field_definition": "name",
    "const_item": "name",
    "static_item": "name",
    "const_spec": "name",
    "var_spec": "name",
    "init_declarator": "declarator",
}
"""Nodes that bind names, and the field of the names."""
_COMPOUND: Final = frozenset(
    {"if_statement", "for_statement", "for_in_statement", "while_statement", "with_statement", "match_statement"}
)
"""Statements that are known by the text above their bodies."""
_ENTERED: Final = re.compile(
    r"\w+_(?:statement|definition|declaration|clause|specification)|(?:statement_)?block|(?:var|import)_spec_list"
    r"|declaration|declaration_list|preproc_(?:if|ifdef|else)|ERROR"
)
"""Nodes in which names are sought."""
_SIGNATURES: Final = frozenset(
    {"declaration", "function_signature", "function_signature_item", "method_signature", "abstract_method_signature"}
)
_SCOPES: Final = frozenset({"class", "impl", "trait", "module", "namespace", "record"})
_ROLE: Final = re.compile(rb"@[\w.]*?\b(overload\b|setter\b|deleter\b|getter\b|register\b[^\n]*)")
_TEST: Final = re.compile(rb"(?:test|it|describe|context|suite)(?:\.\w+)*")
_GROUP: Final = re.compile(rb"(?:describe|context|suite)\b.*", re.DOTALL)
_HOOKS: Final = frozenset({b"beforeEach", b"afterEach", b"beforeAll", b"afterAll", b"before", b"after"})
_IDENTIFIER: Final = re.compile(r"[\w$]+")


def list_statements(parent: Node, language: Language, depth: int = 0) -> list[Statement]:
    """Return the statements of a text or of a class's body, in their order; those that share a line are one."""
    statements: list[Statement] = []
    if parent.named_child_count > MAX_STATEMENTS:
        return statements
    above: list[tuple[int, int, bool]] = []
    for node in parent.named_children:
        start, end = node.start_point.row, _end(node)
        if node.type in COMMENTS or node.type in _ATTACHED:
            if not (statements and start < statements[-1].end) and not _is_file_head(node):
                above.append((start, end, node.type in _ATTACHED))
            continue
        lead, first = start, start
        for begin, finish, is_attached in reversed(above):
            if finish < lead:
                break
            lead, first = begin, begin if is_attached else first
        above = []
        statement = _statement(node, language, depth, lead, first, is_first=not statements)
        if statements and start < statements[-1].end:
            last = statements.pop()
            shared = list(dict.fromkeys([*last.all_names, *statement.all_names]))
            statement = Statement("several", last.lead, last.start, max(last.end, statement.end), shared)
        statements.append(statement)
    return statements


def _statement(node: Node, language: Language, depth: int, lead: int, start: int, *, is_first: bool) -> Statement:
    core, names = _core(node), list(_names(node, language))
    is_import = bool(names) and all(kind == "import" for kind, _ in names)
    own = sorted(dict.fromkeys(name for _, name in names), key="export default".__eq__)
    end, kind = _end(node), "import" if is_import else core.type
    if not own and node.type == "expression_statement" and core.type == "string" and is_first:
        kind, own = "head", ["docstring"] if language.name == "python" else []
    if core.type in _COMPOUND:
        # Names in the guard of a script belong to the script alone.
        kind, own = "compound", [_header(core), *([] if _header(core) == GUARD else own)]
    elif core.type in ("try_statement", "ERROR", "preproc_ifdef", "preproc_if"):
        kind = "compound"
    elif core.type in ("package_clause", "package_declaration", "inner_attribute_item", "hash_bang_line"):
        kind, own = "head", ["package"] if core.type.startswith("package") else []
    definition = language.definitions.get(core.type)
    body = _body(core)
    stub = body is not None and is_stub_body(body)
    is_scope = definition.kind in _SCOPES if definition is not None else _GROUP.match(core.text or b"") is not None
    if body is None or not is_scope or depth >= _DEPTH:
        return Statement(kind, lead, start, end, own, is_stub=stub)
    members = list_statements(body, language, depth + 1)
    header = (_colon(core) or body).start_point.row + 1
    inner = end if body.type == "block" else body.end_point.row
    if header > (members[0].lead if members else inner) or (members and members[-1].end > inner):
        # It is on one line, or its last member is on the line that ends it.
        own = Statement(kind, lead, start, end, own, members).all_names
        return Statement(kind, lead, start, end, own, is_stub=stub)
    return Statement(kind, lead, start, end, own, members, header, inner, is_stub=stub)


def _core(node: Node) -> Node:
    """Return the definition or expression within decorators, exports and statements."""
    while True:
        inner = None
        if node.type in ("decorated_definition", "export_statement"):
            inner = node.child_by_field_name("definition") or node.child_by_field_name("declaration")
        elif node.type in ("expression_statement", "ambient_declaration") and node.named_child_count == 1:
            inner = node.named_children[0]
        if inner is None:
            return node
        node = inner


def _body(node: Node) -> Node | None:
    """Return the body of a definition, of a variable's function, or of a group of tests."""
    if node.type in ("lexical_declaration", "variable_declaration") and node.named_child_count == 1:
        node = node.named_children[0]
    arguments = node.child_by_field_name("arguments") if _test_title(node) is not None else None
    # The function that a group of tests is given.
    function = arguments.named_children[-1] if arguments is not None else None
    for value in (node.child_by_field_name("value"), function):
        body = value.child_by_field_name("body") if value is not None else None
        if body is not None:
            return body if body.type == "statement_block" else None
    return node.child_by_field_name("body")


def _test_title(node: Node) -> str | None:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if node.type != "call_expression" or function is None or arguments is None or not arguments.named_children:
        return None
    title = arguments.named_children[0]
    if title.type not in ("string", "template_string") or not _TEST.fullmatch(function.text or b""):
        return None
    return _text(title)[1:-1]


def _names(node: Node, language: Language) -> Iterator[tuple[str, str]]:
    """Pairs of `import` or `name`, and a name; a name with a role says so, such as `total (setter)`."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        kind = node.type
        if kind in language.imports:
            yield from (("import", name) for name in _list_imports(node, language))
        elif kind in ("lexical_declaration", "variable_declaration") and (specs := _list_requires(node)):
            yield from (("import", name) for name in specs)
        elif kind == "call_expression":
            if (title := _test_title(node)) is not None:
                yield "name", f"test {title}"
            elif (function := node.child_by_field_name("function")) is not None and function.text in _HOOKS:
                yield "name", _text(function)
        elif kind == "export_specifier":
            yield "name", f"export {_text(node.child_by_field_name('alias') or node.child_by_field_name('name'))}"
        elif kind == "impl_item":
            yield "name", _header(node)
        elif kind in _BINDINGS:
            for target in node.children_by_field_name(_BINDINGS[kind]):
                if kind == "assignment_expression" and target.type != "member_expression":
                    # It binds nothing, it changes what is bound.
                    continue
                is_many = "pattern" in target.type or target.type.endswith("_list")
                yield from (
                    ("name", name) for name in (_IDENTIFIER.findall(_text(target)) if is_many else [_text(target)])
                )
            nodes += [right] if kind == "assignment" and (right := node.child_by_field_name("right")) else []
        elif (definition := language.definitions.get(kind)) is not None:
            named, role = node.child_by_field_name(definition.field), _role(node)
            if kind == "declaration" and "function_declarator" not in _declarators(named):
                role = ""
            while named is not None and "declarator" in named.type:
                named = named.child_by_field_name("declarator") or next(iter(named.named_children), None)
            if named is not None:
                is_method = kind == "method_declaration" and language.name == "go"
                yield "name", (f"{receiver(node)}." if is_method else "") + _text(named) + role
        else:
            if kind == "export_statement" and any(child.type == "default" for child in node.children):
                yield "name", "export default"
            if _ENTERED.fullmatch(kind):
                nodes += reversed(node.named_children)


def _role(node: Node) -> str:
    """Return the part of a name that distinguishes a setter, an overload or a signature."""
    if node.type in _SIGNATURES:
        return " (signature)"
    if words := [child.type for child in node.children if child.type in ("static", "set")]:
        return f" ({' '.join(words)})"
    parent = node.parent
    decorators = parent.children if parent is not None and parent.type == "decorated_definition" else ()
    match = next((role for each in decorators if (role := _ROLE.match(each.text or b""))), None)
    return f" ({match[1].decode('utf-8', 'replace').strip()})" if match else ""


def _declarators(node: Node | None) -> Iterator[str]:
    while node is not None and "declarator" in node.type:
        yield node.type
        node = node.child_by_field_name("declarator")


def _list_imports(node: Node, language: Language) -> list[str]:
    """Return the names that an import binds, each with its module."""
    source = node.child_by_field_name("source") or node.child_by_field_name("module_name")
    if language.name == "python":
        module = "__future__" if node.type == "future_import_statement" else _text(source)
        names = [_text(child) for child in node.children_by_field_name("name")]
        return [f"{name} from {module}" if module else name for name in names] or [f"* from {module}"]
    if source is None or node.type != "import_statement":
        return [" ".join(_text(node).split())]
    module, names = _text(source)[1:-1], []
    clause = next((child for child in node.named_children if child.type == "import_clause"), None)
    for child in clause.named_children if clause is not None else ():
        if child.type == "named_imports":
            names += [_text(each) for each in child.named_children if each.type == "import_specifier"]
        else:
            names.append(f"default {_text(child)}")
    return [f"{name} from {module}" for name in names or [""]]


def _list_requires(node: Node) -> list[str]:
    """Return the names that `const ... = require(...)` binds, each with its module."""
    value = node.named_children[0].child_by_field_name("value") if node.named_child_count == 1 else None
    function = value.child_by_field_name("function") if value is not None and value.type == "call_expression" else None
    module = re.search(r"\(\s*['\"`](.+?)['\"`]\s*\)", _text(value)) if function is not None else None
    if module is None or _text(function) != "require":
        return []
    target = node.named_children[0].child_by_field_name("name")
    if target is None or target.type != "object_pattern":
        return [f"default {_text(target)} from {module[1]}"]
    return [f"{_text(each)} from {module[1]}" for each in target.named_children if each.type not in COMMENTS]


def receiver(node: Node) -> str:
    """Return the receiver's type of a Go method."""
    return _text(node.child_by_field_name("receiver")).strip("()").partition("[")[0].rpartition(" ")[2].lstrip("*")


def _header(node: Node) -> str:
    """Return the text above a body, with one kind of space and quotes."""
    body = node.child_by_field_name("consequence") or node.child_by_field_name("body")
    end = _colon(node) or body
    data = (node.text or b"")[: end.start_byte - node.start_byte if end is not None else None]
    return " ".join(data.decode("utf-8", "replace").replace("'", '"').split())


def _colon(node: Node) -> Node | None:
    return next((child for child in node.children if child.type == ":"), None)


def _is_file_head(node: Node) -> bool:
    """Return whether a comment has to stay where it is: the program that runs the file, and its encoding."""
    text = node.text or b""
    return node.start_point.row < 2 and (text.startswith(b"#!") or re.search(rb"coding[:=]", text) is not None)


def _end(node: Node) -> int:
    """Return the row after the last."""
    return node.end_point.row + (node.end_point.column > 0)


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""
