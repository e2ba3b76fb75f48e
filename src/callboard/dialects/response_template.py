"""A dialect from a model's own file: the `response_template` of its tokenizer_config.json.

A new model needs no row of ours if its file says how to parse its replies. Its patterns are never run. Readable parts
of them become markers, which are limited. Other parts are refused with their place.
Source: transformers 5.23, `utils/chat_parsing`, version 1 of the templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, Literal

import msgspec

from callboard.dialects.dialect import CallFrame, Dialect, Reasoning
from callboard.dialects.grammar import Grammar
from callboard.dialects.grammars.json_objects import CALL_KEYS, JsonObjects, Role
from callboard.dialects.grammars.name_then_json import NameThenJson
from callboard.dialects.grammars.python_literals import LiteralSyntax
from callboard.dialects.grammars.pythonic import PythonicCalls
from callboard.dialects.grammars.xml_tags import XmlTags
from callboard.errors import CallerError

_CALLS: Final = "tool_calls"
_REASONING: Final = ("reasoning_content", "reasoning", "thinking")
_SPELLINGS: Final = 16
"""Maximum spellings of one marker."""
_DEPTH: Final = 16
_LONGEST: Final = 16_384
"""Maximum bytes of a template; real ones have about 2,000."""
_TOKEN: Final = re.compile(
    r"""\(\?P<(?P<field>\w+)>(?:\\.|\[(?:\\.|[^\]\\])+\]|[^()\\[])*\)   # what a pattern calls by a name
    | (?P<blank>\\s\*|\\n[?*]|\[\ ]\*|\ \*)
    | (?P<space>\\s\+?|\\n\+|\ \+)
    | \\(?P<escaped>n|t|[^\w\s])
    | (?P<end>\\Z|\$)
    | (?P<open>\(\?:) | (?P<close>\)\??) | (?P<other>\|)
    | (?P<plain>[^\\()[\]*+?.^$|])(?![*+?{])
    """,
    re.VERBOSE,
)
_VALUE: Final = re.compile(r"\(\?P<value>(?:\\.|[^()\\])*\)")
_TAG: Final = re.compile(r"<(\w+)[ =][^<>]*\{name\}")
"""A tag with the name, which its own closing tag closes."""
_FIELD: Final = re.compile(r"(?<!\{)\{\w")
_PLACEHOLDER: Final = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_CONTROL: Final = {"n": "\n", "t": "\t"}
_HINT: Final = "name a dialect of `callboard dialects`, or add one in Python: see docs/dialects.md"


class _Arguments(msgspec.Struct):
    unquoted_keys: bool = False
    string_delims: list[tuple[str, str]] = []
    tag_pattern: str = ""


class _Field(msgspec.Struct):
    open: str | list[str] = []
    open_pattern: str = ""
    close: str | list[str] = []
    close_pattern: str = ""
    content: str = "text"
    content_args: _Arguments = msgspec.field(default_factory=_Arguments)
    transform: Any = None


class _Template(msgspec.Struct):
    fields: dict[str, _Field]
    version: Literal[1] = 1
    start_anchor: str | list[str] = []
    start_anchor_pattern: str = ""


def read_response_template(config: Mapping[str, Any], name: str = "response_template") -> Dialect:
    """Return the dialect that a model's file describes.

    Args:
        config: The contents of a tokenizer_config.json, or only its `response_template`.
        name: The name of the dialect.

    Returns:
        A row that reads what the template reads, streams it, and writes calls in the same form.

    Raises:
        CallerError: There is no template, or a part of it is not supported. The path names the part.
    """
    if "fields" not in config and "response_template" not in config and "response_schema" in config:
        raise _error("response_schema", "transformers 5.13 has replaced it by response_template", _HINT)
    template_data = config.get("response_template", config)
    if len(msgspec.json.encode(template_data)) > _LONGEST:
        raise _error("response_template", f"it has more than {_LONGEST} bytes", _HINT)
    try:
        template = msgspec.convert(template_data, _Template)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        raise _error(f"response_template{at.rstrip('`')}", message, _HINT) from None
    fields = template.fields
    spoken = [field for key, field in fields.items() if key not in (_CALLS, *_REASONING)]
    drops = [each for field in spoken for edge in ("open", "close") for each in _edges(field, edge, "fields.content")]
    # After a call or a thought, a model may begin another message.
    drops += _edges(template, "start_anchor", "response_template")
    return Dialect(
        name,
        summary="as the model's own file says",
        frames=(_frame(fields[_CALLS]),) if _CALLS in fields else (),
        reasoning=tuple(_reasoning(fields)),
        ignored=tuple(dict.fromkeys(_plain(drops))),
    )


def _reasoning(fields: Mapping[str, _Field]) -> Iterator[Reasoning]:
    for key in _REASONING:
        if key in fields:
            closes = _plain(_edges(fields[key], "close", f"fields.{key}"))
            if fields[key].open_pattern.startswith("(?="):  # the prompt has opened it
                opens = [each.replace("</", "<") for each in closes]
            else:
                opens = _plain(_edges(fields[key], "open", f"fields.{key}"))
            yield from (Reasoning(*each) for each in product(opens, closes))


def _frame(field: _Field) -> CallFrame:
    path = f"fields.{_CALLS}"
    opens = [*_edges(field, "open", path)]
    edges = [*_edges(field, "close", path)]
    # A brace that ends the call is part of the call. The text after it ends the frame.
    tail = "}}" if any(each.startswith("}}") for each in edges) else ""
    closes = tuple(_plain([each.removeprefix("}}") for each in edges]))
    end = closes[0] if closes else ""
    roles = _roles(field, path)
    if roles is not None:
        words = tuple([word for each in _plain(opens) if (word := each.strip())])
        if not words:
            raise _error(path, "nothing opens a call", _HINT)
        return CallFrame((_objects(roles),), each=f"{words[0]}\n{{call}}\n{end}", opens=words, closes=closes)
    if not opens or not all("{name}" in each for each in opens):
        raise _error(path, "what opens a call does not say its name", _HINT)
    body = _body(field, tuple(opens), closes, tail, path)
    return CallFrame((body,), each=f"{{call}}{end}", opens=(), closes=closes, join="")


def _body(field: _Field, opens: tuple[str, ...], closes: tuple[str, ...], tail: str, path: str) -> Grammar:
    """Return the grammar of calls whose name precedes their arguments."""
    content, options = field.content, field.content_args
    if content == "json" and not (options.unquoted_keys or options.string_delims):
        return NameThenJson(opens, ends=closes, tail=tail)
    if content == "json":
        if any(begin != end for begin, end in options.string_delims):
            raise _error(f"{path}.content_args.string_delims", "they differ at the two ends of a string", _HINT)
        quotes = tuple(dict.fromkeys([*[begin for begin, _ in options.string_delims], '"', "'"]))
        literals = LiteralSyntax(quotes=quotes, escapes=frozenset({'"', "'"}), separators=":=", bare=True)
        return PythonicCalls(tuple([f"{each}{{{{" for each in opens]), literals, ":=")
    if content == "xml-inline":
        place = f"{path}.content_args.tag_pattern"
        before, _, behind = _VALUE.sub("\0", options.tag_pattern, count=1).partition("\0")
        arguments = [each.removesuffix("{_}") for each in _spellings(before, place) if "{key}" in each]
        argument_ends = _plain(_spellings(behind, place))
        if not arguments or not argument_ends:
            raise _error(place, "it does not say where an argument begins and ends", _HINT)
        own = tuple([f"</{each}>" for opening in opens for each in _TAG.findall(opening)])
        return XmlTags(opens, tuple(arguments), argument_ends[0], own, closes, newlines=True, after_head="\n")
    raise _error(f"{path}.content", f"{content!r} is none that is known", "there are json and xml-inline")


def _roles(field: _Field, path: str) -> dict[str, Role] | None:
    """Return the roles of an object's members if a call is one object; None if the name precedes it."""
    if field.content != "json":
        return None
    transform = field.transform
    function = transform.get("function", transform) if isinstance(transform, Mapping) else transform
    if not isinstance(function, Mapping):  # the object unchanged
        return {}
    places = {key: _PLACEHOLDER.fullmatch(str(function.get(key, ""))) for key in ("name", "arguments")}
    if not all(places.values()):
        raise _error(f"{path}.transform", "it does not say the name and the arguments", _HINT)
    name, arguments = [spellings[1].removeprefix("content.") if spellings else "" for spellings in places.values()]
    if arguments == "content":
        return None
    return {name: Role.NAME, arguments: Role.ARGUMENTS}


def _objects(roles: Mapping[str, Role]) -> JsonObjects:
    if not roles:
        return JsonObjects()
    members = ", ".join([f"{json.dumps(key)}: {{{role.value}}}" for key, role in roles.items()])
    return JsonObjects({**CALL_KEYS, **roles}, f"{{{{{members}}}}}")


def _edges(field: _Field | _Template, edge: str, path: str) -> Iterator[str]:
    """Yield the templates that open or close a field."""
    config = getattr(field, edge)
    if len(config) > _SPELLINGS and not isinstance(config, str):
        raise _error(f"{path}.{edge}", f"more than {_SPELLINGS} markers", _HINT)
    for text in [config] if isinstance(config, str) else config:
        yield text.replace("{", "{{").replace("}", "}}")
    pattern = getattr(field, f"{edge}_pattern")
    if not pattern.startswith("(?="):
        yield from _spellings(pattern, f"{path}.{edge}_pattern")


def _plain(templates: Iterable[str]) -> list[str]:
    """Return the words of templates, without words that have fields."""
    words = [re.sub(r"^\{_\}|\{_\}$", "", each).replace("{_}", " ") for each in templates]
    return [each.replace("{{", "{").replace("}}", "}") for each in words if each and not _FIELD.search(each)]


def _spellings(pattern: str, path: str) -> list[str]:
    """Return the templates of the markers that a pattern matches, without the text's end."""
    spellings, at = _alternatives(pattern, 0, path)
    if at < len(pattern):
        raise _unreadable(pattern, at, path)
    spellings = [re.sub(r"(?:\{_\}|\n)+(?=\n)|(?<=\n)(?:\{_\})+", "", each) for each in spellings]
    return list(dict.fromkeys(each for each in spellings if each.strip()))


def _alternatives(pattern: str, at: int, path: str, depth: int = 0) -> tuple[list[str], int]:
    """Read alternatives up to the pattern's end, or to an unmatched closing bracket."""
    if depth > _DEPTH:
        raise _unreadable(pattern, at, path)
    done: list[str] = []
    here = [""]
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _unreadable(pattern, at, path)
        kind = token.lastgroup or ""
        if kind == "close":
            break
        at = token.end()
        if kind == "other":
            done += here
            here = [""]
        elif kind == "open":
            inner, at = _alternatives(pattern, at, path, depth + 1)
            closing = _TOKEN.match(pattern, at)
            if closing is None or closing.lastgroup != "close":
                raise _unreadable(pattern, at, path)
            at = closing.end()
            here = [a + b for a, b in product(here, [*inner, *([""] if closing[0] == ")?" else [])])]
        else:
            here = [each + _spell_token(kind, token) for each in here]
        if len(here) + len(done) > _SPELLINGS:
            raise _unreadable(pattern, at, path)
    return [*done, *here], at


def _spell_token(kind: str, token: re.Match[str]) -> str:
    text = token[kind]
    if kind == "field":
        return f"{{{text}}}"
    if kind in ("blank", "space", "end"):
        return {"blank": "{_}", "space": " ", "end": ""}[kind]
    return {"{": "{{", "}": "}}"}.get(text, _CONTROL.get(text, text) if kind == "escaped" else text)


def _unreadable(pattern: str, at: int, path: str) -> CallerError:
    return _error(path, f"{pattern[at : at + 40]!r} is more than can be read of a pattern", _HINT)


def _error(path: str, what: str, hint: str) -> CallerError:
    return CallerError(what, path=path, hint=hint)
