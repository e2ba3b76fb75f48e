"""The environment of a command. Law: only listed variables are passed on, so no key of the user's gets in."""

from __future__ import annotations

import os
from pathlib import Path

from callboard.sandbox.policy import Confinement
from callboard.sandbox.readable_paths import is_reachable, rustup_home

_PASSED_VARIABLES = ("PATH", "LANG", "TERM", "TZ")
_SET = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    # The machine's configuration of git is not readable, which git would complain of.
    "GIT_CONFIG_NOSYSTEM": "1",
    # In the sandbox files have another owner than in git's index, and git would read them all anew each time.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.checkStat",
    "GIT_CONFIG_VALUE_0": "minimal",
}


def build_environment(confinement: Confinement, home: Path, **further: str) -> dict[str, str]:
    """The whole environment of a command; what the confinement adds comes last."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_VARIABLES or name.startswith("LC_")}
    # Found through HOME, which is another here.
    if is_reachable(rustup_home() / "toolchains"):
        passed["RUSTUP_HOME"] = str(rustup_home())
    return {**_SET, **passed, "HOME": str(home), **further, **confinement.environment}
