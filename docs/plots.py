# ruff: noqa: INP001, T201  # a script: no package, and it prints
"""Draws the plots of performance.md from its tables, as bars with the figure beside each.

A line `<!-- plot: NAME, COLUMN, ... -->` below a table names columns, from 1, and `pictures/plot-NAME.svg` gets their
figures. Each plot has its own scale. A figure that is not measured has no bar, and "over" a limit has the longest.

`python docs/plots.py` writes; with `--check` it only says what is not current, and exits with 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
PLOT = re.compile(r"((?:^\|.*\n)+)\n<!-- plot: ([\w-]+), ([\d, ]+) -->$", re.MULTILINE)
FIGURE = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
WIDTH, LEFT, BAR, GAP = 720, 290, 14, 8
LONGEST = 330
"""Width of the longest bar. Its figure stands to the right of it."""
COLOURS = ("#00897b", "#8e6bbf", "#c77700", "#5b7aa8")
STYLE = "text{font:12px sans-serif;fill:#222}@media(prefers-color-scheme:dark){text{fill:#ddd}}"


def draw_plots(page: str) -> Iterator[tuple[str, str]]:
    """The name of each plot of a page, and its SVG."""
    for table, name, columns in PLOT.findall(page):
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        yield name, draw(header, rows, [int(column) for column in columns.split(",")])


def draw(header: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> str:
    """The bars of these columns of a table, one group for each row."""
    plain = [[re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", cell) for cell in row] for row in rows]
    measured = [row for row in plain if any(FIGURE.search(row[column]) for column in columns)]
    largest = max(read(row[column]) for row in measured for column in columns if "over" not in row[column])
    parts, y = [], GAP
    for place, column in enumerate(columns if len(columns) > 1 else ()):
        colour = COLOURS[place]
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{BAR}" height="{BAR}" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + BAR + GAP}" y="{y + 11}">{escape(header[column])}</text>')
        y += BAR + 2
    for row in measured:
        y += GAP
        middle = y + len(columns) * BAR // 2 + 4
        parts.append(f'<text x="{LEFT - GAP}" y="{middle}" text-anchor="end">{escape(row[0])}</text>')
        for place, column in enumerate(columns):
            cell = row[column]
            if cell:
                width = LONGEST if "over" in cell else round(LONGEST * max(read(cell), 0) / largest, 1)
                parts.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="{BAR - 2}" fill="{COLOURS[place]}"/>')
                parts.append(f'<text x="{LEFT + width + GAP}" y="{y + 10}">{escape(cell)}</text>')
            y += BAR
    box = f'viewBox="0 0 {WIDTH} {y + GAP}" width="{WIDTH}" height="{y + GAP}"'
    return "\n".join((f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', f"<style>{STYLE}</style>", *parts, "</svg>\n"))


def read(cell: str) -> float:
    """The first number of a cell, or 0."""
    found = FIGURE.search(cell)
    return float(found[0].replace(",", "")) if found else 0.0


def main() -> None:
    """Write the plots that are not current, or say which these are."""
    check = "--check" in sys.argv[1:]
    stale = False
    for name, plot in draw_plots((HERE / "performance.md").read_text("utf-8")):
        path = HERE / f"pictures/plot-{name}.svg"
        if not path.exists() or path.read_text("utf-8") != plot:
            stale = True
            print(f"{path.name} is not current" if check else f"wrote {path.name}")
            if not check:
                path.write_text(plot, "utf-8")
    if stale and check:
        sys.exit("python docs/plots.py writes them")


if __name__ == "__main__":
    main()
