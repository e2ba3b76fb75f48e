"""The parsers of SGLang as its server calls them."""

from collections.abc import Callable, Iterator
from importlib import import_module

from bench.contenders import stand_ins
from bench.contenders.calls import NAME, SCHEMA, SPELLED, Call, arguments, folded, tokens

FunctionCallParser = import_module("sglang.srt.function_call.function_call_parser").FunctionCallParser

_NAMES = {
    "deepseek_v31": "deepseekv31",
    "deepseek_v32": "deepseekv32",
    "llama3_json": "llama3",
    "minimax_m2": "minimax-m2",
}


def reading(dialect: str, size: int) -> tuple[Call, Callable[[], list[Call]]]:
    given = tokens(SPELLED[dialect](size))
    tools = [stand_ins.Tool(function=stand_ins.Function(name=NAME, parameters=SCHEMA))]

    def pieces() -> Iterator[tuple[int, str | None, str | None]]:
        parser = FunctionCallParser(tools, _NAMES.get(dialect, dialect))
        for token in given:
            for item in parser.parse_stream_chunk(token)[1]:
                yield item.tool_index, item.name, item.parameters
        for item in parser.parse_stream_end()[1]:
            yield item.tool_index, item.name, item.parameters

    return (NAME, arguments(size)), lambda: folded(pieces())
