"""How much room there is on a disk.

Knows nothing of limits.
"""

from __future__ import annotations

import shutil
from pathlib import Path


def free_bytes(place: Path) -> int:
    """Bytes that may still be written where a directory is; of one that is gone 0."""
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return 0
