"""A llama.cpp server in this process, from xllamacpp (extra `local`).

It listens on loopback: a local model is one more Chat Completions endpoint, and closing the connection cancels a reply.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any

from callboard.errors import ModelFileError
from callboard.extras import require_extra

MAX_CONTEXT = 8192
"""Tokens; what a model can take beyond that costs memory that a laptop may not have."""


class EmbeddedServer:
    """Serves one model file; loaded when it is first needed, gone with the process."""

    def __init__(self, path: Path, context: int = 0) -> None:
        self._path = path
        self._context = min(context or MAX_CONTEXT, MAX_CONTEXT)
        self._lock = asyncio.Lock()
        self._server: Any = None
        self.api_key = secrets.token_urlsafe()
        self.base_url = ""

    async def start(self) -> None:
        """Loads the model, which takes seconds. Raises CallerError without xllamacpp, ModelFileError if it cannot."""
        async with self._lock:
            if self._server is None:
                self._server = await asyncio.to_thread(self._load)
                self.base_url = f"{self._server.listening_address}/v1"

    def _load(self) -> Any:
        require_extra("local")
        import xllamacpp  # noqa: PLC0415  # 100 MB of native code, for those who use it

        settings = xllamacpp.CommonParams()
        settings.model.path = str(self._path)
        settings.n_ctx = self._context
        settings.n_parallel = 1
        # Those that this process may use: a thread for each of the machine's would have them wait for each other.
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = processors
        settings.use_jinja = True
        settings.verbosity = -1
        settings.warmup = False
        settings.ui = False
        settings.hostnames = ["127.0.0.1"]
        settings.port = 0
        settings.api_keys = [self.api_key]
        try:
            return xllamacpp.Server(settings)
        except RuntimeError as error:
            raise ModelFileError(f"llama.cpp cannot load it: {error}", path=str(self._path)) from None
