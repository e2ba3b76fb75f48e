"""What the commands of a job or a chat may see and do, by the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from callboard.coding.workspace.workspace import READ_ONLY
from callboard.configuration.coding import CodingSettings
from callboard.sandbox import CommandLimits, Confinement


def make_confinement(
    settings: CodingSettings, root: Path, folder: Path, borrowed: Mapping[str, Path] | None = None
) -> Confinement:
    """Make the confinement of commands that work in `root`; their home is made in the job's folder."""
    home = folder / "home"
    home.mkdir(exist_ok=True, mode=0o700)
    limits = settings.limits
    return Confinement(
        workspace=root,
        read_only=READ_ONLY,
        readable=tuple(Path(each).expanduser() for each in settings.sandbox.readable),
        bind_mounts=borrowed or {},
        home=home,
        hosts=settings.sandbox.hosts,
        limits=CommandLimits(
            seconds=limits.command_seconds,
            memory_bytes=limits.command_memory_mb * 1024 * 1024,
            processes=limits.command_processes,
        ),
    )
