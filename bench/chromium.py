"""The browser of the board's benchmark and tests: Debian's chromium, or the one that CALLBOARD_CHROMIUM names."""

import os
import shutil

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Its path; None where there is none."""
    search = f"{os.environ.get('PATH', '')}:/usr/bin"
    return os.environ.get("CALLBOARD_CHROMIUM") or shutil.which("chromium", path=search)
