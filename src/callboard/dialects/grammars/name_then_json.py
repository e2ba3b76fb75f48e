"""A name, a separator, and the arguments as JSON.

Owns the order of these three. Knows nothing of the tokens around them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import InvocationCanister
from callboard.dialects.call_builder import as_object, escaped
from callboard.dialects.grammars.json_arguments import read_arguments
from callboard.dialects.grammars.spelling import arguments_json
from callboard.dialects.grammars.typed_values import only_string, takes
from callboard.dialects.parse_state import Body, Reply
from callboard.dialects.text_buffer import Over, Reading, Refused
from callboard.text.json_value import Brackets
from callboard.text.marker import Marker, Match, marker

_COUNTER = re.compile(r"\d+$")


class Named(Body, frozen=True, eq=False):
    """`headers` are what stands before the arguments, the first as it is spelled; `{name}` and `{id}` are read.

    `ends` is what may stand in place of empty arguments. With `raw`, what is no JSON is the one argument of
    a tool that takes one string, up to one of the ends.
    """

    headers: tuple[str, ...]
    ends: tuple[str, ...] = ()
    tail: str = ""
    """What stands behind the arguments."""
    raw: bool = False
    name_from_id: bool = False
    """The name is the identifier without `functions.` and its counter."""

    @property
    def heads(self) -> Sequence[Marker]:
        follow = () if self.raw else ("{{", *self.ends)
        return [marker(header, follow) for header in self.headers]

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        reader = reply.reader
        identifier = head.fields.get("id", "")
        name = named(identifier) if self.name_from_id else head.fields["name"]
        if self.name_from_id and name.isdigit() and not reply.calls.any and not reply.calls.declared(name):
            reader.at = head.end
            yield from _call_by_arguments(reply, identifier)
            return
        if head.cut and not reply.calls.declared(name):
            raise Over  # the name may be cut
        reader.at = head.end
        try:
            yield from reader.blank()
            empty = reader.text[reader.at] != "{" and (yield from reader.first([marker(end) for end in self.ends]))
        except Over:
            if not declared or reply.calls.declared(name):
                reply.open(name, identifier)
                reply.abandon()
            raise
        if reader.text[reader.at] == "{":
            call = reply.open(name, identifier, declared=declared)
            yield from read_arguments(reply, call)
        elif empty:
            call = reply.open(name, identifier, declared=declared)
            call.write("{}", reader.offset)
        elif self.raw and (key := only_string(reply.calls.schema(name))):
            call = reply.open(name, identifier, declared=declared)
            yield from read_text(reply, key, self.ends)
        else:
            raise Refused
        if self.tail:
            try:
                yield from reader.blank()
                if found := (yield from reader.first([marker(self.tail)])):
                    reader.at = found[1].end
            except Over:
                reply.close()
                raise
        reply.close()

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        identifier = call.identifier
        if self.name_from_id and named(identifier) != call.name:
            counter = _COUNTER.search(identifier)
            identifier = f"functions.{call.name}:{counter[0] if counter else 0}"
        header = self.headers[0].format(name=call.name, id=identifier, line="\n", _="")
        return header + arguments_json(call) + self.tail.format()


def _call_by_arguments(reply: Reply, identifier: str) -> Reading[None]:
    """A call whose identifier is a counter alone: of the one tool that takes such arguments, if there is one."""
    reader, brackets = reply.reader, Brackets()
    yield from reader.blank()
    if reader.text[reader.at] != "{":
        raise Refused
    pieces: list[str] = []
    closed = False
    while not closed:
        begin = reader.at
        closed, reader.at = brackets.step(reader.text, begin)
        pieces.append(reader.text[begin : reader.at])
        if not closed:
            yield
    raw = "".join(pieces)
    names = [name for name in reply.calls.names if takes(reply.calls.schema(name), as_object(raw))]
    reply.open(names[0] if len(names) == 1 else identifier, identifier).write(raw, reader.offset)
    reply.close()


def read_text(reply: Reply, key: str, ends: Sequence[str]) -> Reading[None]:
    """The characters up to one of the ends, or to the end of the text, as the one argument."""
    reader, call = reply.reader, reply.call
    if call is None:
        raise AssertionError
    call.write(f'{{"{escaped(key)}":"', reader.offset)
    markers = [marker(end) for end in ends]
    start = re.compile(f"[{re.escape(''.join({each.prefix[0] for each in markers}))}]" if markers else r"(?!)")
    try:
        while True:
            found = start.search(reader.text, reader.at)
            at = len(reader.text) if found is None else found.start()
            call.write(escaped(reader.text[reader.at : at]), reader.base + at)
            reader.at = at
            reader.drop()
            if found is None:
                yield
            elif (yield from reader.first(markers)):
                break
            else:
                reader.at += 1
                call.write(escaped(found[0]), reader.offset)
    except Over:
        if reply.why != "stop":
            reply.abandon()
            raise
        call.write(escaped(reader.text[reader.at :]), reader.base + len(reader.text))
        reader.at = len(reader.text)
        call.write('"}', reader.offset)
        reply.close()
        raise
    call.write('"}', reader.offset)


def named(identifier: str) -> str:
    """`get_time` of `functions.get_time:3`."""
    head, colon, counter = identifier.rpartition(":")
    name = head if colon and counter.isdigit() else identifier
    return name.removeprefix("functions.")
