"""Programs that run others, and where in their words the other program stands.

A program that is in no table here may run others by itself, as `make` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    """aa-exec at batch bwrap capsh catchsegv cgexec choom chpst chrt cpulimit csh daemon daemonize dbus-launch
    dbus-run-session debugfs dumb-init eatmydata ed elvish emacs entr ex expect fakechroot fakeroot faketime firejail
    fish ftp gdb hyperfine i386 i486 i586 i686 jobs kexec ld.so linux32 linux64 lldb lp ltrace lxc-attach lxc-execute
    machinectl minijail0 nc ncat newgrp nsenter nsjail nu numactl nvim open parallel perf pkexec prlimit proot
    proxychains proxychains4 pwsh rlwrap rsh run-parts runcon runuser rvim rview s6-setuidgid schroot screen script
    scriptreplay setarch setpriv setuidgid sg slogin socat softlimit ssh ssh-agent sshpass start-stop-daemon strace su
    systemd-inhibit systemd-nspawn systemd-run tclsh tcsh tini tmux torsocks trickle tsocks unbuffer uname26 unshare
    valgrind vi view vim vimdiff watch wish x86_64 xdg-open xonsh xvfb-run zathura""".split()  # noqa: SIM905  # names on a few lines
)
_CODE: Final[Mapping[str, str]] = {
    "python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "node": "ep", "php": "r", "lua": "e", "Rscript": "e",
}  # fmt: skip
"""Programs that run code given by these options."""
_AWK: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
FIND: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_LINKER: Final = re.compile(r"ld(?:-linux|-musl)?[\w-]*\.so[.\d]*")
"""The dynamic linker, which runs the program that it is given."""
_MODULES: Final = frozenset({"timeit", "pdb", "IPython", "code", "trace", "profile", "cProfile", "runpy"})
"""Modules of Python that run code, or another module, that stands behind them."""
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


RUNNERS: Final = frozenset(
    {
        ("npx",), ("bunx",), ("pnpx",), ("uvx",), ("npm", "exec"), ("npm", "x"), ("pnpm", "exec"), ("pnpm", "dlx"),
        ("yarn", "exec"), ("yarn", "dlx"), ("bun", "x"), ("uv", "run"), ("poetry", "run"), ("pipenv", "run"),
        ("pdm", "run"), ("hatch", "run"), ("rye", "run"), ("conda", "run"), ("mamba", "run"), ("bundle", "exec"),
        ("rbenv", "exec"), ("pyenv", "exec"), ("asdf", "exec"), ("mise", "exec"), ("mise", "x"), ("direnv", "exec"),
        ("rustup", "run"), ("opam", "exec"), ("dotnet", "exec"), ("pipx", "run"),
    }
)  # fmt: skip
"""Managers of packages that run a program of these. What allows them allows it; what denies it denies them."""

_GIT: Final = frozenset({"filter-branch", "difftool", "mergetool", "instaweb", "send-email", "web--browse", "daemon"})
_GIT_OPTIONS: Final = ("--config-env", "--exec-path", "--upload-pack", "--receive-pack")


def redefines(name: str, words: Sequence[str]) -> bool:
    """Whether a builtin changes what the words behind it mean, or runs what is in a file or variable."""
    return name in _REDEFINING or (name in _EVALUATING and any(word.startswith("-v") for word in words))


def runs_unseen(name: str, words: Sequence[str]) -> bool:
    """Whether a program, called with these words, runs others that they do not show."""
    if name in _OPAQUE or _LINKER.fullmatch(name) or any(_RUNS.match(word) for word in words):
        return True
    if name == "git":
        return any(word == "-c" or word.startswith(_GIT_OPTIONS) or word in _GIT for word in words)
    if name in _AWK:
        return any("system" in word or "|" in word for word in words)
    if name.startswith(("python", "pypy")) and any(_module(pair) in _MODULES for pair in pairwise([*words, ""])):
        return True
    letters = _CODE.get(name.rstrip("0123456789."), "")
    return any(word.startswith("-") and word[:2] != "--" and not set(letters).isdisjoint(word) for word in words)


def _module(pair: tuple[str, str]) -> str:
    """The module that an option of Python runs, with the word behind it; "" if it runs none."""
    option, after = pair
    if option[:1] != "-" or option[:2] == "--" or "m" not in option:
        return ""
    return option.partition("m")[2] or after
