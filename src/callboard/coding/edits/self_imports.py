"""Drop the imports by which a piece of code imports the file that it is put into.

Small models write `from calc import add` into calc.py, which fails as a circular import.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from callboard.coding.edits.text_edits import EditRefused
from callboard.coding.outlines.languages import Statement


def drop_self_imports(code: str, path: str, statements: Sequence[Statement], existing: Iterable[Statement]) -> str:
    """The code without imports of its own file. Raises EditRefused if one imports a name that the file does not define.

    Args:
        code: The code.
        path: Its file.
        statements: The statements of the code.
        existing: The statements of the file.
    """
    place = PurePosixPath(path)
    parts = [*place.parent.parts, place.stem]
    if place.suffix not in (".py", ".pyi"):
        certain, possible = {f"./{place.stem}", f"./{place.name}"}, set()
    elif place.stem == "__init__":
        certain, possible = set(), {".", place.parent.name, ".".join(parts[parts[0] == "src" : -1])}
    else:
        # Another directory may have a module of that name: it is this file if that defines what is imported.
        certain, possible = {".".join(parts), ".".join(parts[parts[0] == "src" :]), f".{place.stem}"}, {place.stem}
    defined = {name for each in (*statements, *existing) if each.kind != "import" for name in each.names}
    lines = code.split("\n")
    for each in reversed([each for each in statements if each.kind == "import"]):
        pairs = [
            (name.removeprefix("default "), module) for name, _, module in (n.rpartition(" from ") for n in each.names)
        ]
        own = [(name, module) for name, module in pairs if (module or name.partition(" ")[0]) in certain | possible]
        own += [(name, module) for name, module in pairs if module == "." and name == place.stem]
        missing = [name for name, module in own if not module or (name not in defined and name != "*")]
        if own and len(own) == len(pairs) and not missing:
            del lines[each.start : each.end]
        elif any(
            module in certain or (not module and name.partition(" ")[0] in certain) or name == place.stem
            for name, module in own
        ):
            raise EditRefused(
                f"line {each.start + 1} of the code imports {path} into itself: {lines[each.start].strip()[:80]!r}; "
                f"leave the import out, and define {', '.join(missing) or 'its names'} here"
            )
    return "\n".join(lines)
