"""A report as one page: tables, plots and every miss with its conversation.

Laws: the page asks for nothing from elsewhere and runs no script, and its own policy forbids both; whatever a model or a
task wrote stands in it as text. Every figure of a plot stands in a table as well, so that nobody depends on seeing it.

Why SVG by hand and not a library of plots: three plots of rectangles, lines and circles need none, and a picture would
neither follow the reader's colours nor be searchable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from callboard.evaluation.report import (
    LABELS,
    Miss,
    Report,
    VariantScore,
    describe_variant,
    format_figure,
    format_interval,
)

MAX_MISSES: Final = 2000
"""Misses whose conversations a page holds."""
_WIDTH: Final = 720
_LEFT: Final = 190
_RIGHT: Final = 60
_ROW: Final = 26
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_HEIGHT: Final = 260
_FIGURE: Final = 12
"""Characters of a figure such as `120 of 200`."""
_NAME: Final = 26
"""Characters of a variant's name in a plot."""

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1c1f24; --soft: #5c6470; --line: #d5d9df; --page: #fff; --box: #f5f6f8;
  --mark: #2563a8; --good: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --soft: #9aa3b0; --line: #3a414b; --page: #15181c;
  --box: #1e2228; --mark: #7db2ea; --good: #6cc08f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, figcaption { color: var(--soft); } figure { margin: 1rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } svg .axis { stroke: var(--line); } svg .whisker { stroke: var(--mark); stroke-width: 2; }
svg .point { fill: var(--mark); }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem; border-radius: 2px; }
details { border-bottom: 1px solid var(--line); padding: .35rem 0; } summary { cursor: pointer; }
summary b { font-weight: 600; } .why { color: var(--soft); }
dl { background: var(--box); padding: .6rem 1rem; margin: .5rem 0; border-radius: 4px; } dt { color: var(--soft);
  font-size: .85rem; } dd { margin: 0 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.45 ui-monospace, monospace; } .expected { color: var(--good); }
"""
_COLORS: Final = (
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#8c8c8c", "#d37295",
)  # fmt: skip
"""One for each label, to be told apart on a light and on a dark page."""


def render_html(report: Report, *, subtitle: str = "") -> str:
    """Render a report as a page.

    Args:
        report: The report.
        subtitle: What else a reader should know, such as the date and the command.
    """
    title = f"How well {report.model} calls tools"
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{report.planned} tasks, {len(report.variants)} variants. {escape(subtitle)}</p>",
        _render_choice(report),
        _render_variants(report.variants),
        *_render_plots(report.variants),
        _render_categories(report.variants),
        *_render_labels(report.variants),
        *_render_misses(report.misses),
        *_render_failures(report),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style>'
    )
    body = "\n".join(filter(None, sections))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _render_choice(report: Report) -> str:
    choice = report.choice
    return f"<p>Best: <b>{escape(choice.name)}</b>, by {escape(choice.reason)}.</p>" if choice else ""


# Tables.


def _render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join([f'<th scope="col">{escape(each)}</th>' for each in head])
    lines = [f"<tr>{''.join([f'<td>{escape(_join_figure(cell))}</td>' for cell in row])}</tr>" for row in rows]
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _join_figure(cell: str) -> str:
    """The cell with spaces that no line breaks at, if it is short: a figure stays on one line with its unit."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}") if len(cell) <= _FIGURE else cell


def _render_variants(variants: Sequence[VariantScore]) -> str:
    head = (
        "variant", "facts", "solved", "share", "95 %", "seconds a task", "median", "9 of 10", "seconds a solved task",
        "tokens a solved task", "no answer",
    )  # fmt: skip
    return _render_table(
        head,
        [
            (
                each.name,
                describe_variant(each),
                f"{each.solved} of {each.total}",
                f"{each.share * 100:.1f} %",
                format_interval(each.interval),
                f"{each.seconds_per_task:.2f}",
                f"{each.median_seconds:.2f}",
                f"{each.slow_seconds:.2f}",
                format_figure(each.seconds_per_solved, 2),
                format_figure(each.tokens_per_solved, 0),
                str(each.failures),
            )
            for each in variants
        ],
    )


def _render_categories(variants: Sequence[VariantScore]) -> str:
    rows = [
        (variant.name, each.suite, each.category, f"{each.solved} of {each.total}", format_interval(each.interval))
        for variant in variants
        for each in variant.categories
    ]
    return "<h2>By category</h2>" + _render_table(("variant", "suite", "category", "solved", "95 %"), rows)


def _render_labels(variants: Sequence[VariantScore]) -> list[str]:
    labels = [label for label in LABELS if any(label in each.labels for each in variants)]
    if not labels:
        return []
    rows = [(each.name, *[str(each.labels.get(label, 0)) for label in labels]) for each in variants]
    return ["<h2>By label</h2>", _render_table(("variant", *labels), rows)]


# Plots.


def _render_plots(variants: Sequence[VariantScore]) -> list[str]:
    if not variants:
        return []
    return [
        "<h2>Solved, with the interval that holds the true share 95 times of 100</h2>",
        _figure(_draw_intervals(variants), "Share of solved tasks and its interval, by variant"),
        "<h2>What became of each task</h2>",
        _figure(_draw_labels(variants), "Shares of solved tasks and of labels of misses, by variant"),
        _render_legend(variants),
        "<h2>Share over seconds</h2>",
        _figure(_draw_scatter(variants), "Share of solved tasks over seconds a task, by variant"),
    ]


def _figure(svg: str, label: str) -> str:
    named = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
    return f"<figure>{named}</figure>"


def _svg(height: float, parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", soft: bool = False) -> str:
    look = ' class="soft"' if soft else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, look: str = "axis") -> str:
    return f'<line class="{look}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _at(share: float) -> float:
    return _LEFT + share * _PLOT


def _name_label(name: str, y: float) -> str:
    short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return _text(_LEFT - 10, y, short, anchor="end")


def _share_axis(bottom: float) -> list[str]:
    return [
        part
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
        for part in (
            _line(_at(share), 4, _at(share), bottom),
            _text(_at(share), bottom + 16, f"{share * 100:.0f} %", anchor="middle", soft=True),
        )
    ]


def _draw_intervals(variants: Sequence[VariantScore]) -> str:
    bottom = _ROW * len(variants) + 8
    parts = _share_axis(bottom)
    for number, each in enumerate(variants):
        y = _ROW * number + _ROW / 2 + 6
        low, high = _at(each.interval.low), _at(each.interval.high)
        parts += [
            _name_label(each.name, y + 4),
            _line(low, y, high, y, "whisker"),
            _line(low, y - 5, low, y + 5, "whisker"),
            _line(high, y - 5, high, y + 5, "whisker"),
            f'<circle class="point" cx="{_at(each.share):.1f}" cy="{y:.1f}" r="5"/>',
            _text(_WIDTH - _RIGHT + 8, y + 4, f"{each.solved}/{each.total}", soft=True),
        ]
    return _svg(bottom + 24, parts)


def _draw_labels(variants: Sequence[VariantScore]) -> str:
    bottom = _ROW * len(variants) + 8
    parts = _share_axis(bottom)
    for number, each in enumerate(variants):
        y = _ROW * number + 8
        parts.append(_name_label(each.name, y + 14))
        x = float(_LEFT)
        for label, color, count in _parts_of(each):
            width = count / each.total * _PLOT if each.total else 0.0
            title = f"<title>{escape(f'{each.name}: {label} {count}')}</title>"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 8}" fill="{color}">{title}</rect>'
            )
            x += width
    return _svg(bottom + 24, parts)


def _parts_of(score: VariantScore) -> list[tuple[str, str, int]]:
    """What became of its tasks: name, colour, count."""
    misses = [
        (label, color, score.labels[label])
        for label, color in zip(LABELS, _COLORS, strict=True)
        if label in score.labels
    ]
    return [("solved", "var(--good)", score.solved), *misses]


def _render_legend(variants: Sequence[VariantScore]) -> str:
    names = dict.fromkeys((label, color) for each in variants for label, color, count in _parts_of(each) if count)
    keys = [f'<span class="key" style="background:{color}"></span>{escape(label)}' for label, color in names]
    return f"<p>{''.join(keys)}</p>"


def _draw_scatter(variants: Sequence[VariantScore]) -> str:
    top, bottom = 14, _HEIGHT - 40
    longest = max(each.seconds_per_task for each in variants) or 1.0

    def height(share: float) -> float:
        return bottom - share * (bottom - top)

    parts = [
        part
        for share in (0.0, 0.5, 1.0)
        for part in (
            _line(_LEFT, height(share), _LEFT + _PLOT, height(share)),
            _text(_LEFT - 10, height(share) + 4, f"{share * 100:.0f} %", anchor="end", soft=True),
        )
    ]
    parts += [
        _text(_at(share), bottom + 18, f"{share * longest:.1f} s", anchor="middle", soft=True)
        for share in (0.0, 0.5, 1.0)
    ]
    parts.append(_text(_at(0.5), bottom + 34, "seconds a task", anchor="middle", soft=True))
    for each in variants:
        x = _at(each.seconds_per_task / longest)
        is_right = each.seconds_per_task > longest / 2
        parts += [
            _line(x, height(each.interval.low), x, height(each.interval.high), "whisker"),
            f'<circle class="point" cx="{x:.1f}" cy="{height(each.share):.1f}" r="5"/>',
            _text(
                x - 9 if is_right else x + 9,
                height(each.share) - 6,
                each.name[:_NAME],
                anchor="end" if is_right else "start",
            ),
        ]
    return _svg(_HEIGHT, parts)


# Misses.


def _render_misses(misses: Sequence[Miss]) -> list[str]:
    if not misses:
        return []
    lines = [f"<h2>{len(misses)} misses</h2>", *[_render_miss(miss) for miss in misses[:MAX_MISSES]]]
    more = len(misses) - MAX_MISSES
    return [*lines, *([f"<p>and {more} more</p>"] if more > 0 else [])]


def _render_miss(miss: Miss) -> str:
    name = f"{miss.suite} {miss.category} {miss.task}"
    rows = [
        f'<dt>{escape(line.role)}</dt><dd class="{escape(line.role)}">{escape(line.text)}</dd>'
        for line in miss.conversation
    ]
    return (
        f"<details><summary><b>{escape(miss.label)}</b> {escape(name)} <i>{escape(miss.variant)}</i> "
        f'<span class="why">{escape(miss.why)}</span></summary><dl>{"".join(rows)}</dl></details>'
    )


def _render_failures(report: Report) -> list[str]:
    if not report.failures:
        return []
    rows = [(each.variant, each.task, each.why) for each in report.failures]
    return ["<h2>Without an answer, and in no figure</h2>", _render_table(("variant", "task", "why"), rows)]
