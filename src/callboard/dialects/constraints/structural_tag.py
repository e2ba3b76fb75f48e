"""A structural tag of the calls that a dialect writes: xgrammar's format, which vLLM and SGLang take.

A call is a `tag`: what it begins with, its arguments, what it ends with. Arguments are a `json_schema`, with xgrammar's
own style where it has one for the dialect's tags, else a `grammar`: the same rules as for llama.cpp. `triggered_tags`
leave text free until a call has begun.

Source: the documentation of xgrammar 0.2 ("Structural Tag Usage"), and its styles of models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callboard.core import ToolDeclaration
from callboard.dialects.constraints.call_parts import check_tools, expression_of, parts_of
from callboard.dialects.constraints.parts import Arguments, Blank, Expression, Name, Parts
from callboard.dialects.constraints.rules import GrammarRules
from callboard.dialects.dialect import Dialect
from callboard.dialects.grammar import Grammar
from callboard.dialects.grammars.xml_tags import XmlTags

_STYLES: Mapping[str, str] = {
    "<parameter={key}>": "qwen_xml",
    '<parameter name="{key}">': "minimax_xml",
    '<｜DSML｜parameter name="{key}" string="{string}">': "deepseek_xml",
    "<arg_key>{key}</arg_key>{_}<arg_value>": "glm_xml",
    '<|open|>argument key="{key}" type="{type}"<|sep|>': "kimi_k3_xml",
}
"""What xgrammar calls a style of arguments, by how the first of them begins."""
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def write_structural_tag(
    dialect: Dialect, tools: Sequence[ToolDeclaration], *, lazily: bool = False, parallel: bool = True
) -> dict[str, Any]:
    """The structural tag of calls of these tools, as `response_format` takes it.

    Args:
        dialect: Spells the calls.
        tools: At least one.
        lazily: Text is free until a call has begun, and behind it.
        parallel: One call may follow another.

    Raises:
        NotSpellable: The dialect has no rules, or no spelling for a tool.
    """
    check_tools(dialect, tools)
    frame = dialect.render_frame
    before, behind = frame.section.split("{calls}")
    opens, closes = frame.each.split("{call}")
    grammar = frame.grammars[0]
    tags = [_tag(grammar, (opens, *parts_of(grammar, tool), closes)) for tool in tools]
    calls: dict[str, Any] = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": frame.join,
        "at_least_one": True,
        "stop_after_first": not parallel,
    }
    if before or behind:
        section = {"type": "tag", "begin": before, "content": calls, "end": behind}
        form = _trigger([section], [before.strip() or before], parallel=parallel) if lazily else section
    elif lazily:
        marker = opens.strip()
        triggers = [marker] if marker and not frame.declared_only else [tag["begin"] for tag in tags]
        form = _trigger(tags, triggers, parallel=parallel)
    else:
        form = calls
    return {"type": "structural_tag", "format": form}


def _trigger(tags: Sequence[Mapping[str, Any]], triggers: Sequence[str], *, parallel: bool) -> dict[str, Any]:
    return {
        "type": "triggered_tags",
        "triggers": list(triggers),
        "tags": list(tags),
        "at_least_one": False,
        "stop_after_first": not parallel,
    }


def _tag(grammar: Grammar, parts: Parts) -> dict[str, Any]:
    """One call: text in front, what varies, text behind."""
    places = [at for at, part in enumerate(parts) if isinstance(part, (Arguments, Expression))]
    first, last = places[0], places[-1]
    inside = list(_formats(grammar, parts[first : last + 1]))
    content = inside[0] if len(inside) == 1 else {"type": "sequence", "elements": inside}
    end = _text_of(parts[last + 1 :])
    if content.get("style") and isinstance(grammar, XmlTags):
        end = grammar.between + end
    return {"type": "tag", "begin": _text_of(parts[:first]), "content": content, "end": end}


def _formats(grammar: Grammar, parts: Parts) -> Iterator[dict[str, Any]]:
    for part in parts:
        if isinstance(part, Arguments) and (style := _style(grammar, part)):
            yield {"type": "json_schema", "json_schema": _schema(part.tool), **style}
        elif isinstance(part, (Arguments, Expression)):
            rules = GrammarRules()
            yield {"type": "grammar", "grammar": rules.text(expression_of(part, rules))}
        elif text := _text_of((part,)):
            yield {"type": "const_string", "value": text}


def _style(grammar: Grammar, part: Arguments) -> dict[str, str] | None:
    """The style of arguments as a schema; None where only rules say them."""
    if part.write is None:
        return {"style": "json"}
    style = _STYLES.get(grammar.arguments[0]) if isinstance(grammar, XmlTags) else None
    return {"style": style} if style and part.tool.schema.get("properties") else None


def _schema(tool: ToolDeclaration) -> Mapping[str, Any]:
    """The schema of the arguments; nothing may stand in them where the tool declares nothing."""
    return tool.schema if tool.schema.keys() - {"type", "title", "description"} else _NOTHING


def _text_of(parts: Parts) -> str:
    return "".join(
        [part if isinstance(part, str) else part.text for part in parts if isinstance(part, (str, Blank, Name))]
    )
