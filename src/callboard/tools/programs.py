"""Programs that run others.

Owns what is known of them: where in their words another program stands, or that it stands where nobody sees it.
Knows nothing of shells. What is in no table here runs what it likes by itself, as `make` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_REDEFINING: Final = frozenset(
    """alias bind builtin compgen complete declare enable export fc getopts hash let local mapfile read
    readarray readonly set shopt source trap typeset unalias unset .""".split()  # noqa: SIM905  # names on a few lines
)
_EVALUATING: Final = frozenset({"[", "printf", "test"})

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash"})
SHELL_LETTERS: Final = frozenset("abcefhilmnuvxC")
SHELL_OPTIONS: Final = frozenset({"--norc", "--noprofile", "--posix", "--login"})
_OPAQUE: Final = frozenset(
    """at batch bwrap chpst csh entr expect fakeroot firejail fish gdb jobs ltrace nsenter nu parallel pkexec
    proot pwsh run-parts runuser screen script setpriv ssh start-stop-daemon strace su systemd-run tcsh tmux
    unshare watch xonsh""".split()  # noqa: SIM905  # names on a few lines
)
_CODE: Final[Mapping[str, str]] = {
    "python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "node": "ep", "php": "r", "lua": "e", "Rscript": "e",
}  # fmt: skip
"""Programs that run code given by these options."""
_AWK: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
FIND: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_RUNS: Final = re.compile(r"--[\w-]*(?:exec|command|rsh|action|eval)\b")
"""Options of many programs that name another."""


class Wrapper(NamedTuple):
    """A program that runs another: its options without a value, those with one, and the operands before the other."""

    flags: str = ""
    valued: str = ""
    operands: int = 0
    long: frozenset[str] = frozenset()
    appends: bool = False
    """Whether it gives the other words that it reads elsewhere."""

    def takes(self, letters: str) -> int:
        """How many words an option such as `-n` takes with its value; 0 if it is not known."""
        for at, letter in enumerate(letters):
            if letter in self.valued:
                return 1 if letters[at + 1 :] else 2
            if letter not in self.flags:
                return 0
        return 1


WRAPPERS: Final[Mapping[str, Wrapper]] = {
    "busybox": Wrapper(),
    "chroot": Wrapper(operands=1),
    "chronic": Wrapper("ev"),
    "command": Wrapper("pvV"),
    "doas": Wrapper("n", "uC"),
    "env": Wrapper("i0v", "uC", long=frozenset({"--ignore-environment", "--null"})),
    "exec": Wrapper("cl", "a"),
    "flock": Wrapper("sxeunoF", "wE", 1),
    "ionice": Wrapper("t", "cn"),
    "nice": Wrapper("", "n"),
    "nohup": Wrapper(),
    "setsid": Wrapper("cfw"),
    "stdbuf": Wrapper("", "ioe"),
    "sudo": Wrapper("nEHSkPb", "ugphCTrtRD"),
    "taskset": Wrapper("", "", 1),
    "time": Wrapper("pvaq", "of"),
    "timeout": Wrapper("v", "ks", 1, frozenset({"--preserve-status", "--foreground", "--verbose"})),
    "toybox": Wrapper(),
    "xargs": Wrapper("0rtxpo", "EILnPsad", long=frozenset({"--null", "--no-run-if-empty", "--verbose"}), appends=True),
}


_GIT: Final = frozenset({("bisect", "run"), ("submodule", "foreach"), ("rebase", "-x")})
_GIT_OPTIONS: Final = ("--config-env", "--exec-path", "--upload-pack", "--receive-pack")


def redefines(name: str, words: Sequence[str]) -> bool:
    """Whether a builtin changes what the words behind it mean, or runs what is in a file or variable."""
    return name in _REDEFINING or (name in _EVALUATING and any(word.startswith("-v") for word in words))


def runs_unseen(name: str, words: Sequence[str]) -> bool:
    """Whether a program, called with these words, runs others that they do not show."""
    if name in _OPAQUE or any(_RUNS.match(word) for word in words):
        return True
    if name == "git":
        return any(word == "-c" or word.startswith(_GIT_OPTIONS) or pair in _GIT for word, pair in _pairs(words))
    if name in _AWK:
        return any("system" in word or "|" in word for word in words)
    letters = _CODE.get(name.rstrip("0123456789."), "")
    return any(word.startswith("-") and word[:2] != "--" and not set(letters).isdisjoint(word) for word in words)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each word, and with the one behind it."""
    return ((word, (word, after)) for word, after in pairwise([*words, ""]))
