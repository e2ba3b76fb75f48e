"""Log lines of the servers and of a worker: escaped, masked, and with the identifiers of their subject.

Clients, models and backends choose names, paths and messages. A log call that forgets to escape them would let others
forge log lines. So a filter escapes every record of every handler, and log calls escape nothing.

Laws: a record is one line, and the lines of a traceback are indented. Records and tracebacks have no control characters
and nothing that looks like a secret (`masking`). A JSON record is always one line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from callboard.telemetry.masking import mask_secrets
from callboard.telemetry.spans import trace_identifiers
from callboard.telemetry.turn_on import LogFormat
from callboard.text.display import display

_NUMBERS: Final = (int, float)
_INDENT: Final = "    "
_SHORT: Final = 100
"""Maximum characters of a text whose masked form is cached."""
_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"
_EXCEPTIONS: Final = logging.Formatter()
_NOTHING: Final[Mapping[str, str]] = {}
_subject: ContextVar[Mapping[str, str]] = ContextVar("callboard.telemetry.logs", default=_NOTHING)


def set_log_subject(**identifiers: str) -> None:
    """Set the identifiers for the log lines of this task, such as `request` or `job`."""
    _subject.set(identifiers)


def configure_logs(level: int, log_format: LogFormat) -> None:
    """Write the log to standard error. Our own lines start at `level`, the lines of others at warnings."""
    logging.basicConfig(level=logging.WARNING)
    # Our formats name neither thread nor process.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("callboard").setLevel(level)
    formatter = JsonLines() if log_format == "json" else logging.Formatter(_TEXT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)
        sanitize_records(handler)  # also the lines of uvicorn and asyncio


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, subject, and trace if there is one."""

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
    """Escapes the arguments of a record's message. It accepts every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_safe", False):  # another handler's filter has done this
            return True
        record.is_safe = True
        if isinstance(record.args, tuple):
            record.args = tuple([_safe(each) for each in record.args])
        else:  # a mapping, or None
            record.msg, record.args = record.getMessage(), ()
        if not record.args:
            record.msg = mask_secrets(display(str(record.msg)))
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # A formatter uses this text instead of its own traceback.
            record.exc_text = _indent(mask_secrets(_EXCEPTIONS.formatException(record.exc_info)))
        if record.stack_info:
            record.stack_info = _indent(record.stack_info)
        return True


_safe_records = SafeRecords()


def sanitize_records(target: logging.Logger | logging.Handler) -> None:
    """Sanitize every record of a logger or a handler. A second call has no effect."""
    target.addFilter(_safe_records)


def _safe(value: Any) -> Any:
    """Escape and mask a value. Keep numbers, because a message may format their digits."""
    if isinstance(value, _NUMBERS):
        return value
    text = str(value)
    return _mask_short(text) if len(text) <= _SHORT else mask_secrets(display(text))


@lru_cache(256)
def _mask_short(text: str) -> str:
    """Remember names and words, because most lines repeat those of the lines before."""
    return mask_secrets(display(text))


def _indent(text: str) -> str:
    """Indent every line, so that no line looks like a record."""
    return "\n".join([_INDENT + display(line) for line in text.split("\n")])
