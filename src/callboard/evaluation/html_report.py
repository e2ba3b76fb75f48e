"""A report as one page: tables, plots and every miss with its conversation.

Laws: the page loads nothing and runs no script, and its own policy forbids both. Texts of models and tasks are escaped.
Every figure of a plot is also in a table, so that readers who cannot see the plot have it.
"""

from __future__ import annotations

from typing import Final

from callboard.evaluation.report import LABELS, Report, VariantScore, describe_variant, format_figure, format_interval

MAX_MISSES: Final = 2000
"""Maximum misses on a page."""
_FIGURE: Final = 12
"""Maximum characters of a figure such as `120 of 200`."""
_COLORS: Final = (
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#8c8c8c", "#d37295",
    "#499894", "#d4a6c8", "#86bcb6",
)  # fmt: skip
"""One color for each label, distinguishable on a light and on a dark page."""


def render_html(report: Report, *, subtitle: str = "") -> str:
    """Render a report as a page.

    Args:
        report: The report.
        subtitle: Other facts for the reader, such as the date and the command.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  # an extra

    templates = Environment(
        loader=PackageLoader("callboard.evaluation", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(figure=_join_figure, parts=_parts_of)
    variants = report.variants
    labels = [label for label in LABELS if any(label in each.labels for each in variants)]
    return templates.get_template("report.html").render(
        title=f"How well {report.model} calls tools",
        subtitle=subtitle,
        report=report,
        variants=variants,
        variant_rows=[_variant_row(each) for each in variants],
        category_rows=[
            (variant.name, each.suite, each.category, f"{each.solved} of {each.total}", format_interval(each.interval))
            for variant in variants
            for each in variant.categories
        ],
        labels=labels,
        label_rows=[(each.name, *[str(each.labels.get(label, 0)) for label in labels]) for each in variants],
        failure_rows=[(each.variant, each.task, each.why) for each in report.failures],
        legend=dict.fromkeys((label, color) for each in variants for label, color, count in _parts_of(each) if count),
        max_misses=MAX_MISSES,
    )


def _join_figure(cell: str) -> str:
    """Replace the spaces of a short cell with no-break spaces, to keep a figure and its unit on one line."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}") if len(cell) <= _FIGURE else cell


def _variant_row(score: VariantScore) -> tuple[str, ...]:
    return (
        score.name,
        describe_variant(score),
        f"{score.solved} of {score.total}",
        f"{score.share * 100:.1f} %",
        format_interval(score.interval),
        f"{score.seconds_per_task:.2f}",
        f"{score.median_seconds:.2f}",
        f"{score.slow_seconds:.2f}",
        format_figure(score.seconds_per_solved, 2),
        format_figure(score.tokens_per_solved, 0),
        str(score.failures),
    )


def _parts_of(score: VariantScore) -> list[tuple[str, str, int]]:
    """Return the parts of the variant's bar: label, color and number of tasks."""
    misses = [
        (label, color, score.labels[label])
        for label, color in zip(LABELS, _COLORS, strict=True)
        if label in score.labels
    ]
    return [("solved", "var(--good)", score.solved), *misses]
