"""What does it cost to parse a source text in a process of its own?

usage: python -m bench.parsing

Milliseconds of one text, wall: Callboard's own sources, each once, by tree-sitter in this process and by the parser's
process; then that process' start, and what a text costs that ends it. Best of five; the last two once.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import callboard
from callboard.coding.outlines.languages import find_language
from callboard.coding.outlines.parser import ParserProcess
from callboard.coding.outlines.tree_walk import read_tree

TIMES = 5
PYTHON = find_language("a.py")
JAVA = find_language("A.java")


def milliseconds(act: Callable[[str], object], texts: Iterable[str]) -> float:
    """Of each, in the mean."""
    counts = [*texts]
    begin = time.perf_counter()
    for text in counts:
        act(text)
    return (time.perf_counter() - begin) * 1000 / len(counts)


def main() -> None:
    assert PYTHON is not None
    assert JAVA is not None
    python, java = PYTHON, JAVA
    paths = sorted(Path(callboard.__file__).parent.rglob("*.py"))
    texts = [path.read_text() for path in paths]
    parser = ParserProcess()
    start = milliseconds(lambda text: parser.parse(text, python), ["x = 1"])

    def best(act: Callable[[str], object]) -> float:
        # Other texts each time: the parser remembers the last ones.
        return min(milliseconds(act, (f"{text}# {turn}\n" for text in texts)) for turn in range(TIMES))

    print(f"{len(texts)} texts of {sum(map(len, texts)) // len(texts):,} characters in the mean")
    print(f"{'in this process':24}{best(lambda text: read_tree(text, python)):10.2f} ms")
    print(f"{'in a process of its own':24}{best(lambda text: parser.parse(text, python)):10.2f} ms")
    print(f"{'its start':24}{start:10.0f} ms")
    bomb = milliseconds(lambda text: parser.parse(text, java), ["a<" * 30_000])
    print(f"{'a text that ends it':24}{bomb:10.0f} ms")
    parser.close()


if __name__ == "__main__":
    main()
