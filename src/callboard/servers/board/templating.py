"""Pages from templates.

Laws: every value in a template is escaped. A name without a value is an error.

Static files of the pages: one style sheet, one script and the icon, all ours and in the package.

Their addresses contain the digest of their content: browsers cache them forever, and a new release has new addresses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response
from starlette.routing import Route

from callboard.mcp.server_report import describe_place
from callboard.profiles import format_cost
from callboard.servers.board.markup import format_json_text, render_markdown
from callboard.servers.gateway.traffic_values import RequestRow
from callboard.text.display import make_visible
from callboard.text.duration import format_duration
from callboard.text.plural import format_count
from callboard.text.surrogates import encode_json
from callboard.text.truncate import truncate

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"board.css": "text/css", "board.js": "text/javascript", "icon.svg": "image/svg+xml"}
)
_KEEP: Final = "public, max-age=31536000, immutable"


def _make_route(name: str) -> Route:
    content = (files("callboard.servers.board") / "static" / name).read_bytes()
    response = Response(content, media_type=TYPES[name], headers={"cache-control": _KEEP})
    return Route(f"/static/{sha256(content).hexdigest()[:12]}/{name}", response, methods=["GET"])


ASSETS: Final[Mapping[str, Route]] = MappingProxyType({name: _make_route(name) for name in TYPES})


MAX_TEXT: Final = 2000
"""Maximum characters of a description from a server or a tool."""


MAX_SCHEMA: Final = 16_000
"""Maximum characters of the parameters of a tool."""


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("callboard.servers.board", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(assets=ASSETS, digest=digest)
    made.filters.update(
        count="{:,}".format,
        plural=format_count,
        tokens=format_tokens,
        cost=format_cost,
        duration=format_duration,
        visible=make_visible,
        cut=cut,
        seconds=format_seconds,
        moment=to_time,
        remarks=list_remarks,
        markdown=render_markdown,
        pretty=format_json_text,
        parameters=format_parameters,
        address=describe_place,
    )
    return made


def digest(*values: object) -> str:
    """Return the key of an element: the script replaces the element if these values change."""
    return sha256(encode_json(values)).hexdigest()[:16]


def render(template: str, values: Mapping[str, Any]) -> Markup:
    """The text of a template, such as `jobs.html`."""
    return Markup(environment().get_template(template).render(values))  # noqa: S704  # the template has escaped it


def format_tokens(number: int) -> str:
    """A count of tokens in at most five characters: 950, 12.3k, 4.5M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def format_json(value: Any) -> str:
    """Return JSON over several lines for editing. Invisible characters are escaped, so that they survive the edit."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text.translate({ord(char): json.dumps(char)[1:-1] for char in set(text) if make_visible(char) != char})


def format_parameters(schema: Mapping[str, Any]) -> str:
    """Return the JSON Schema of a tool's arguments, cut."""
    return truncate(format_json(schema), MAX_SCHEMA)


def cut(text: str) -> str:
    """Cut a description from a server or tool, and make it fully visible, because a person decides on it."""
    return make_visible(truncate(text, MAX_TEXT))


def format_seconds(seconds: float | None) -> str:
    """Seconds with three significant digits; "-" if they are unknown."""
    if seconds is None:
        return "-"
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}" if seconds < 100 else f"{seconds:.0f}"


def to_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def now() -> datetime:
    return datetime.now(UTC)


def list_remarks(row: RequestRow) -> list[str]:
    counts = (("call", "from text", row.recovered), ("repair", "", row.repaired), ("field", "lost", len(row.dropped)))
    again = [f"asks {row.again_of} again"] if row.again_of else []
    return [*[f"{format_count(count, noun)} {what}".strip() for noun, what, count in counts if count], *again]
