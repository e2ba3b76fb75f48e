"""Choose the context of a local model: its whole window if the memory of this machine is sufficient.

The file is mapped into memory, and the cache has a fixed size for each token of the context. A part of the machine's
memory stays free for the buffers of llama.cpp and for other programs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

CacheType: TypeAlias = Literal["f16", "q8_0"]
CACHE_SIZES: Final[dict[CacheType, float]] = {"f16": 1.0, "q8_0": 34 / 64}
"""Size of each type of cache, compared with f16. A block of q8_0 has 32 values in 34 bytes."""
_RESERVE: Final = 1 << 30
_RESERVE_PART: Final = 4
"""Keep at least `_RESERVE` bytes free, and at least a quarter of the machine's memory."""
UNKNOWN_WINDOW: Final = 8192
"""Context of a file that does not say its window, and of machines that do not say their memory."""
_SMALLEST: Final = 2048


class Memory(msgspec.Struct, frozen=True):
    """Memory of this machine or container, in bytes: `free` can be used now; 0 means unknown."""

    total: int = 0
    free: int = 0

    @property
    def usable(self) -> int:
        """Bytes that a model may take, so that the reserve stays free."""
        return max(0, self.free - max(_RESERVE, self.total // _RESERVE_PART))


class LocalContext(msgspec.Struct, frozen=True):
    """The context of a model: `tokens`, `cache_bytes`, and a `remark` if it is not what was expected."""

    tokens: int
    cache_bytes: int
    remark: str = ""

    def __str__(self) -> str:
        cache = f", cache {self.cache_bytes / 1e9:,.1f} GB" if self.cache_bytes else ""
        return f"context {self.tokens:,} tokens{cache}{f'; {self.remark}' if self.remark else ''}"


def choose_context(window: int, token_bytes: float, file_bytes: int, setting: int, memory: Memory) -> LocalContext:
    """Return the context of a model.

    Args:
        window: The model's window in tokens; 0 if it is unknown.
        token_bytes: Memory of one token in the cache.
        file_bytes: Size of the model's file.
        setting: The user's choice in tokens; 0 takes the window, or what fits into the memory.
        memory: The memory of this machine.
    """
    largest = window or UNKNOWN_WINDOW

    def make(tokens: int, remark: str = "") -> LocalContext:
        return LocalContext(tokens, round(tokens * token_bytes), remark)

    if setting:
        tokens = min(setting, window or setting)
        need = file_bytes + tokens * token_bytes
        if memory.total and need > memory.free:
            return make(tokens, f"it needs {need / 1e9:.1f} GB of memory, and {memory.free / 1e9:.1f} GB are free")
        return make(tokens, f"the model reads no more than {window:,}" if tokens < setting else "")
    if not memory.total:
        return make(min(largest, UNKNOWN_WINDOW))
    room = memory.usable - file_bytes
    if largest * token_bytes <= room:
        return make(largest)
    tokens = min(_SMALLEST, largest)
    while tokens * 2 < largest and tokens * 2 * token_bytes <= room:
        tokens *= 2
    return make(tokens, f"the model can read {largest:,}, but {memory.free / 1e9:.1f} GB of memory are free")


def read_memory(root: Path = Path("/")) -> Memory:
    """Return the memory of this machine, or of the control group of this process if that has less."""
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in [line.partition(":") for line in lines]}
        memory = Memory(sizes["MemTotal"], sizes["MemAvailable"])
    except (OSError, ValueError, LookupError):
        return _guess_memory()
    try:
        group = (root / "proc/self/cgroup").read_text().splitlines()[-1].removeprefix("0::/")
        folder = root / "sys/fs/cgroup" / group
        limit = int((folder / "memory.max").read_text())  # a number, or "max"
        cached = dict([line.split() for line in (folder / "memory.stat").read_text().splitlines()])
        free = limit - int((folder / "memory.current").read_text()) + int(cached["inactive_file"])
        return Memory(min(memory.total, limit), max(0, min(memory.free, free)))
    except (OSError, ValueError, LookupError):
        return memory


def _guess_memory() -> Memory:
    """Return the memory of a system without /proc, such as macOS. It does not say what is free: assume half."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return Memory()
    return Memory(total, total // 2)
