"""Log lines of the servers and of a worker: safe to read, with the identifiers of what they are about, and masked.

Clients, models and backends choose names, paths and messages, and a log call that forgets to escape one of them lets
its author write lines of their own. So no call escapes anything: a filter does it for every record, whichever handler
writes it.

Laws: a record is one line, and the lines of a traceback are indented; neither holds a control character, nor what looks
like a secret (`masking`). As JSON a record is one line whatever is in it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from callboard.telemetry.masking import mask_secrets
from callboard.telemetry.spans import trace_identifiers
from callboard.telemetry.turn_on import LogFormat
from callboard.text.display import display

_NUMBERS: Final = (int, float)
_INDENT: Final = "    "
_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"
_EXCEPTIONS: Final = logging.Formatter()
_NOTHING: Final[Mapping[str, str]] = {}
_subject: ContextVar[Mapping[str, str]] = ContextVar("callboard.telemetry.logs", default=_NOTHING)


def set_log_subject(**identifiers: str) -> None:
    """Say what the lines of this task are about from now on, such as `request` or `job`."""
    _subject.set(identifiers)


def configure_logs(level: int, log_format: LogFormat) -> None:
    """Let the process write its log to standard error: our own lines from a level on, others' from warnings on."""
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("callboard").setLevel(level)
    formatter = JsonLines() if log_format == "json" else logging.Formatter(_TEXT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)
        sanitize_records(handler)  # what uvicorn and asyncio say as well


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, what it is about, the trace where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_subject.get(),
            **trace_identifiers(),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = mask_secrets(record.exc_text)
        return msgspec.json.encode(line).decode()


class SafeRecords(logging.Filter):
    """Escapes what is put into a record's message. It refuses no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_safe", False):  # of another handler's filter
            return True
        record.is_safe = True
        if isinstance(record.args, tuple):
            record.args = tuple([_safe(each) for each in record.args])
        else:  # a mapping, or None
            record.msg, record.args = record.getMessage(), ()
        if not record.args:
            record.msg = mask_secrets(display(str(record.msg)))
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # A formatter takes this text for the traceback, and makes none of its own.
            record.exc_text = _indent(mask_secrets(_EXCEPTIONS.formatException(record.exc_info)))
        if record.stack_info:
            record.stack_info = _indent(record.stack_info)
        return True


_safe_records = SafeRecords()


def sanitize_records(target: logging.Logger | logging.Handler) -> None:
    """Make every record safe that the logger is given, or that the handler writes. Twice is as good as once."""
    target.addFilter(_safe_records)


def _safe(value: Any) -> Any:
    """Numbers stay what they are, for a message may say how many digits it wants."""
    return value if isinstance(value, _NUMBERS) else mask_secrets(display(str(value)))


def _indent(text: str) -> str:
    """With every line indented, so that none of them looks like a record."""
    return "\n".join([_INDENT + display(line) for line in text.split("\n")])
