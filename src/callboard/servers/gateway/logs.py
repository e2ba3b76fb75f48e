"""What goes into the log, made safe to read.

Owns the one way from a log call to a line. Clients, models and backends choose names, paths and messages, and a log
call that forgets to escape one of them lets its author write lines of their own. So no call escapes anything: a filter
does it for every record, whichever handler writes it.

Law: a record is one line, and the lines of a traceback are indented; neither holds a control character.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from callboard.text.display import display

_NUMBERS: Final = (int, float)
_INDENT: Final = "    "
_EXCEPTIONS: Final = logging.Formatter()


class SafeRecords(logging.Filter):
    """Escapes what is put into a record's message. It refuses no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple([_safe(each) for each in record.args])
        else:  # a mapping, or None
            record.msg, record.args = record.getMessage(), ()
        if not record.args:
            record.msg = display(str(record.msg))
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # A formatter takes this text for the traceback, and makes none of its own.
            record.exc_text = _indented(_EXCEPTIONS.formatException(record.exc_info))
        if record.stack_info:
            record.stack_info = _indented(record.stack_info)
        return True


_safe_records = SafeRecords()


def sanitize_records(target: logging.Logger | logging.Handler) -> None:
    """Make every record safe that the logger is given, or that the handler writes. Twice is as good as once."""
    target.addFilter(_safe_records)


def _safe(value: Any) -> Any:
    """Numbers stay what they are, for a message may say how many digits it wants."""
    return value if isinstance(value, _NUMBERS) else display(str(value))


def _indented(text: str) -> str:
    """With every line indented, so that none of them looks like a record."""
    return "\n".join([_INDENT + display(line) for line in text.split("\n")])
