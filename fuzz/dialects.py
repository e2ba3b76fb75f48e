"""Any text, in any dialect, however it is cut: nothing raises, every cut means the same, no character is lost.

An input's first four bytes choose the dialect, the tools, how the text is cut, and how it ends; the rest is the text.
The first inputs are the vectors. With atheris, those that reach new code are changed further; without it, the
vectors are changed at random, the same way every time. What fails is printed with the command that runs it again.
"""

import argparse
import gc
import json
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from inspect import isfunction
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    TextPiece,
    ToolDeclaration,
    Why,
)
from callboard.dialects import DIALECTS, Dialect, Parser
from callboard.dialects.fences import CALL_LABELS
from callboard.testing import coalesce

VECTORS = Path(__file__).resolve().parents[1] / "tests/vectors/dialects"
CORPUS = Path(__file__).resolve().parents[1] / ".fuzz/corpus"
"""What atheris keeps from run to run."""
NAMES = sorted(DIALECTS)
LONGEST = 4096
"""Characters of an input."""
RANDOM = 200
"""A cut above this is the seed of pieces of random sizes."""
SIZES = (1, 1, 2, 3, 5, 8, 13, 40)

Case = Mapping[str, Any]

# The vectors, and what inputs are made of.


def vectors() -> Iterator[Case]:
    for path in sorted(VECTORS.glob("*.jsonl")):
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def tools_of(case: Case) -> str:
    return json.dumps(case.get("tools", [{"name": "get_weather"}, {"name": "get_time"}]), sort_keys=True)


def declared(tools: str) -> list[ToolDeclaration] | None:
    names = json.loads(tools)
    if names is None:
        return None
    return [ToolDeclaration(each["name"], "", each.get("parameters", {}), each.get("cli", {})) for each in names]


TOOLS = sorted({"null", "[]"} | {tools_of(case) for case in vectors()})
DECLARED = [declared(tools) for tools in TOOLS]


class Input(NamedTuple):
    dialect: str
    tools: int
    """Which of TOOLS."""
    cut: int
    """The size of the pieces, or above RANDOM a seed."""
    why: Why
    thinking: bool
    text: str

    @classmethod
    def decoded(cls, data: bytes) -> "Input":
        """Bytes that are no UTF-8 become halves of surrogate pairs."""
        dialect, tools, cut, flags = data[:4].ljust(4, b"\0")
        text = data[4:].decode("utf-8", "surrogateescape")[:LONGEST]
        why: Why = "length" if flags & 1 else "stop"
        return cls(NAMES[dialect % len(NAMES)], tools % len(TOOLS), cut, why, bool(flags & 2), text)

    @classmethod
    def of(cls, case: Case) -> "Input":
        tools, thinking = TOOLS.index(tools_of(case)), case.get("start_in_reasoning", False)
        return cls(case["dialect"], tools, 1, case.get("stop", "stop"), thinking, case["text"])

    def encoded(self) -> bytes:
        flags = (self.why == "length") | self.thinking << 1
        head = bytes([NAMES.index(self.dialect), self.tools, self.cut, flags])
        return head + self.text.encode("utf-8", "surrogateescape")

    def pieces(self) -> Iterator[str]:
        chance = random.Random(self.cut)
        at = 0
        while at < len(self.text):
            size = chance.choice(SIZES) if self.cut > RANDOM else max(1, self.cut)
            yield self.text[at : at + size]
            at += size

    def read(self, *pieces: str) -> list[Event]:
        parser = Parser(DECLARED[self.tools], self.dialect, start_in_reasoning=self.thinking)
        events = [event for piece in pieces for event in parser.feed(piece)]
        return [*events, *parser.finish(self.why)]


# What has to be.


def check(given: Input) -> list[Event]:
    """The events of the input. Raises AssertionError for what must not be, and whatever the parser raises."""
    told = given.read(*given.pieces())
    whole, cut = coalesce(given.read(given.text)), coalesce(told)
    assert cut == whole, f"cut: {cut}\nwhole: {whole}"
    check_calls(told)
    check_offsets(given, told)
    if TOOLS[given.tools] == "[]" and not DIALECTS[given.dialect].is_only_format and not given.thinking:
        assert whole == ([TextPiece(given.text, (0, len(given.text)))] if given.text else []), "without tools"
    return whole


def check_calls(events: Sequence[Event]) -> None:
    """Calls are counted and told to their ends, and what was told of one does not change."""
    started: dict[int, InvocationStarted] = {}
    pieces: dict[int, list[str]] = {}
    for event in events:
        match event:
            case InvocationStarted():
                assert event.index == len(started)
                assert event.identifier not in {each.identifier for each in started.values()}
                started[event.index] = event
                pieces[event.index] = []
            case ArgumentsPiece():
                pieces[event.index].append(event.json)
            case InvocationEnded() | InvocationIncomplete():
                assert event.raw == "".join(pieces.pop(event.index))
                first = started[event.index]
                assert (event.identifier, event.name) == (first.identifier, first.name)
                if isinstance(event, InvocationEnded) and event.arguments is not None:
                    assert event.arguments == json.loads(event.raw, strict=False)
    assert not pieces, "a call without an end"


def check_offsets(given: Input, events: Sequence[Event]) -> None:
    """Each character is told once, or is framing. What is said is what stands there."""
    said, rest, last = set[int](), list(given.text), 0
    for event in events:
        match event:
            case Note(kind="missed_call" | "alert"):
                pass  # what it is about stays text
            case TextPiece() | ReasoningPiece() | Note() | InvocationEnded() | InvocationIncomplete():
                begin, end = event.offsets or (-1, -1)
                assert 0 <= begin <= end <= len(given.text), event
                span = range(begin, end)
                if not isinstance(event, Note):
                    assert end >= last, f"{event} is told behind {last}"
                    last = end
                if not said.isdisjoint(span):
                    raise AssertionError(f"{event} is text already")
                if isinstance(event, TextPiece):
                    # An answer of the dialect `action` is a JSON string.
                    assert given.text[begin:end] == event.text or given.dialect == "action", event
                    assert all(rest[at] for at in span), f"{event} is told twice"
                    said.update(span)
                rest[begin:end] = [""] * len(span)
    if given.dialect == "action":
        return  # the members of its objects are framing, whatever their names
    for left, chars in groupby(rest, bool):
        piece = "".join(chars)
        assert not left or framing(given.dialect).fullmatch(piece), f"{piece!r} is lost: {events}"


@cache
def markers(name: str) -> tuple[str, ...]:
    """The words of a dialect's framing, the longest first."""
    found = set[str]()
    for dialect in _spoken(name):
        found |= {*dialect.ignored, *(marker for each in dialect.reasoning for marker in (each.opens, each.closes))}
        for frame in (*dialect.frames, *(fence.frame for fence in dialect.fences), dialect.prefilled):
            if frame is not None:
                heads = [head.prefix for body in frame.grammars for head in body.heads]
                found |= {*frame.openers, *frame.closers, *([] if frame.openers else heads)}
    return tuple(sorted(found - {"", "{", "["}, key=len, reverse=True))


def _spoken(name: str) -> tuple[Dialect, ...]:
    return DIALECTS[name], *DIALECTS[name].alternatives


@cache
def framing(name: str) -> re.Pattern[str]:
    """What is around calls and text, and at the end the beginning of a word of it."""
    languages = {language for dialect in _spoken(name) for fence in dialect.fences for language in fence.languages}
    languages |= CALL_LABELS
    parts = [
        r"[\s,;\[\](){}`~]",
        rf"(?:`{{3,}}|~{{3,}})[ \t]*(?i:{'|'.join(map(re.escape, sorted(languages, reverse=True)))})",
        r"Action:\s*(?i:none|null|n/a)",
        r"(?:<\|start\|>|<\|channel\|>|to=)(?s:.*?)<\|message\|>",
        *map(re.escape, markers(name)),
    ]
    begun = "|".join(map(_begun, markers(name))) or "(?!)"
    return re.compile(f"(?:{'|'.join(parts)})*(?:{begun})?")


def _begun(marker: str) -> str:
    """Matches what begins like the marker."""
    pattern = ""
    for char in reversed(marker[:-1]):
        pattern = f"{re.escape(char)}(?:{pattern})?"
    return pattern or "(?!)"


# Inputs.

WORDS = [
    *"`{}[]()<>|/\",:;=\\\n \t'",
    "```",
    "```json\n",
    "````",
    "\n```\n",
    "~~~",
    '"name"',
    '"arguments"',
    '{"name": "get_time", "arguments": {}}',
    "get_time",
    "get_weather",
    "null",
    "<think>",
    "</think>",
    "\N{REPLACEMENT CHARACTER}",
    "\0",
    "\N{MATHEMATICAL SCRIPT CAPITAL X}",
    "\udc80",
    "x" * 70,
    "[" * 40,
]
"""Of no dialect, or of all."""
_TOKEN = re.compile(r"<[^<>\n]{1,60}>|\[[A-Z_]+\]|```\w*|\w[\w ]*:|\w+|\s+|[^\w\s]")


@cache
def tokens(name: str) -> Sequence[str]:
    """What texts in the dialect are made of."""
    texts = [case["text"] for case in vectors() if case["dialect"] == name]
    return sorted({*markers(name), *WORDS[-5:], *(token for text in texts for token in _TOKEN.findall(text))})


def babbled(chance: random.Random) -> Input:
    """The words of a dialect in no order."""
    name = chance.choice(NAMES)
    words = [chance.choice(chance.choice((tokens(name), WORDS))) for _ in range(chance.randrange(30))]
    return Input(name, chance.randrange(len(TOOLS)), 1, "stop", thinking=False, text="".join(words))


def changed(chance: random.Random, given: Input, others: Sequence[Input]) -> Input:
    """The input with a few things done to it."""
    text = given.text
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        begin, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        end = min(end, begin + chance.choice((1, 1, 2, 4, 12, LONGEST)))
        here, other = text[begin:end], chance.choice(others).text
        to = chance.randrange(len(text) + 1)
        text = chance.choice(
            (
                text[:begin] + text[end:],
                text[:end] + here + text[end:],
                text[:to] + here + text[to:],
                text[:begin] + text[to : to + len(here)] + text[end:],
                text[:begin],
                text[begin:],
                text[:begin] + chance.choice(tokens(given.dialect)) + text[begin:],
                text[:begin] + chance.choice(WORDS) + text[begin:],
                text[:begin] + other[: chance.randrange(len(other) + 1)] + text[begin:],
            )
        )
    return Input(
        given.dialect if chance.random() < 0.8 else chance.choice(NAMES),
        given.tools if chance.random() < 0.7 else chance.randrange(len(TOOLS)),
        chance.choice((1, 1, 2, 3, 7, chance.randrange(RANDOM, 256))),
        given.why if chance.random() < 0.6 else chance.choice(("stop", "length")),
        given.thinking != (chance.random() < 0.05),
        text[:LONGEST],
    )


def inputs(runs: int, seed: int) -> Iterator[Input]:
    """The vectors, and then what comes of them."""
    known = [Input.of(case) for case in vectors()]
    chance = random.Random(seed)
    for run in range(runs):
        if run < len(known):
            yield known[run]
        else:
            yield changed(chance, chance.choice(known) if chance.random() < 0.8 else babbled(chance), known)


def explore(runs: int, seed: int) -> None:
    """Has atheris look for inputs that reach new code. It ends the process."""
    import atheris  # noqa: PLC0415 - only where it is installed

    known = [Input.of(case) for case in vectors()]

    def change(data: bytes, size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return atheris.Mutate(data, size)
        return changed(chance, Input.decoded(data), known).encoded()[:size]

    for function in filter(isfunction, gc.get_objects()):
        if str(function.__module__).startswith(("callboard.dialects", "callboard.text")):
            atheris.instrument_func(function)
    CORPUS.mkdir(parents=True, exist_ok=True)
    for index, given in enumerate(known):
        (CORPUS / f"vector-{index}").write_bytes(given.encoded())
    options = [
        f"-runs={runs}",
        f"-seed={seed}",
        f"-max_len={LONGEST}",
        f"-artifact_prefix={CORPUS.parent}/",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(CORPUS)], lambda data: run(Input.decoded(data)), custom_mutator=change)
    atheris.Fuzz()


def run(given: Input) -> None:
    try:
        check(given)
    except BaseException:
        print(f"{given}\n\n    fuzz/dialects.py --input {given.encoded().hex()}\n", file=sys.stderr, flush=True)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="how many inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=bytes.fromhex, help="only this one")
    given = parser.parse_args()
    if given.input is not None:
        run(Input.decoded(given.input))
    elif find_spec("atheris"):
        explore(given.runs, given.seed)
    else:
        print("without atheris: the vectors, changed at random")
        for each in inputs(given.runs, given.seed):
            run(each)
        print(f"{given.runs} inputs")


if __name__ == "__main__":
    main()
