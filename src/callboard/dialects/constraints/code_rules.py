"""The parts of calls that are expressions, `name(key=value)`, or a shell's commands."""

from __future__ import annotations

from typing import Any

from callboard.core import ToolDeclaration
from callboard.dialects.constraints.literal_rules import identifier_key, values_of
from callboard.dialects.constraints.parts import Arguments, Name, Parts
from callboard.dialects.constraints.rules import GrammarRules, literal, sequence
from callboard.dialects.constraints.schema_rules import SchemaRules
from callboard.dialects.constraints.text_rules import text_without, word_of
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.grammars.code_calls import ShellCommands
from callboard.dialects.grammars.pythonic import CLOSERS, PythonicCalls
from callboard.dialects.grammars.typed_values import only_string
from callboard.schema.subschemas import Schema

_FENCE = "```"


def expression_parts(grammar: PythonicCalls, tool: ToolDeclaration) -> Parts:
    """The parts of a call in `PythonicCalls`."""
    before, _, behind = grammar.calls[0].format(name="\0", _="").partition("\0")
    syntax = values_of(grammar.literals)

    def write(rules: GrammarRules, schema: Schema) -> str:
        values = SchemaRules(rules, schema, syntax)
        comma = [literal(","), syntax.space(rules)]

        def argument(key: str, held: Any) -> str:
            spelled = syntax.spell_key(key) if grammar.literals.bare else identifier_key(key)
            return sequence([literal(f"{spelled}{grammar.separators[0]}"), values.value(held)])

        return values.members(values.combine(schema), argument, comma=comma)

    return before, Name(tool.name), behind, Arguments(tool, write), CLOSERS[behind[-1]]


def shell_parts(grammar: ShellCommands, tool: ToolDeclaration) -> Parts:
    """The parts of a fence that is one call of a tool that runs commands."""
    if tool.name not in grammar.shell.tools or not only_string(tool.schema):
        raise NotSpellable(f"{tool.name} is no tool that runs code, so what its commands are cannot be said by rules")

    def write(rules: GrammarRules, _schema: Schema) -> str:
        return sequence(["[!-_a-~]", text_without(rules, [word_of(_FENCE)])])

    return (Arguments(tool, write),)
