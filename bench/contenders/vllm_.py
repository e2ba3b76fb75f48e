"""The parsers of vLLM as its server calls them, with a tokenizer whose tokens are those of `calls.tokens`."""

from collections.abc import Callable, Iterator
from importlib import import_module

from bench.contenders import stand_ins
from bench.contenders.calls import CONTROL, NAME, SCHEMA, SPELLED, Call, arguments, folded, tokens

ParserManager = import_module("vllm.parser.parser_manager").ParserManager


class Tokenizer:
    all_special_tokens = ()
    all_special_ids = ()

    def __init__(self, vocabulary: list[str]) -> None:
        self._vocabulary = vocabulary
        self._ids = {token: number for number, token in enumerate(vocabulary)}

    def get_vocab(self) -> dict[str, int]:
        return self._ids

    def encode(self, text: str, **_: object) -> list[int]:
        return [self._ids[token] for token in tokens(text)]

    def decode(self, ids: list[int], **_: object) -> str:
        return "".join([self._vocabulary[number] for number in ids])


def reading(dialect: str, size: int) -> tuple[Call, Callable[[], list[Call]]]:
    given = tokens(SPELLED[dialect](size))
    tokenizer = Tokenizer(list(dict.fromkeys([*CONTROL, *given])))
    steps = [(token, tokenizer.encode(token), number == len(given)) for number, token in enumerate(given, 1)]
    parser_class = ParserManager.get_parser(dialect, enable_auto_tools=True)
    request = stand_ins.Request(tools=[stand_ins.Tool(function=stand_ins.Function(name=NAME, parameters=SCHEMA))])

    def pieces() -> Iterator[tuple[int, str | None, str | None]]:
        parser = parser_class(tokenizer, request.tools)
        for text, ids, finished in steps:
            message = parser.parse_delta(text, ids, request, [], finished=finished)
            for call in message.tool_calls if message else ():
                yield call.index, call.function.name, call.function.arguments

    return (NAME, arguments(size)), lambda: folded(pieces())
