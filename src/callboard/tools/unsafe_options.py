"""Options by which a program that only reads writes a file, or runs another program.

One table, for programs that are commonly allowed or that deny patterns are commonly written about. It helps, and
protects from nothing: a program may do what no table here knows. The sandbox protects.

A word counts as such an option in all the ways in which it may be written: in a cluster of letters, with its value
behind it, and shortened, as getopt_long and git allow. What is taken for one by mistake is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple


class Options(NamedTuple):
    """Words that do something else than look: letters of short options, long ones, whole words, and patterns.

    `operands` is how many may stand there before one is a file that is written.
    """

    letters: str = ""
    long: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    pattern: str = ""
    operands: int = 1_000_000

    def find(self, words: Sequence[str]) -> Iterator[int]:
        """The numbers of these words."""
        operands = 0
        for number, word in enumerate(words):
            operand = not word.startswith("-") or word == "-"
            operands += operand
            if word in self.words or (self.pattern and re.search(self.pattern, word)):
                yield number
            elif operand:
                if operands > self.operands:
                    yield number
            elif word.startswith("--"):
                name = word[2:].partition("=")[0]
                if name and any(each.startswith(name) for each in self.long):
                    yield number
            elif not set(self.letters).isdisjoint(word[1:]):
                yield number


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NONE: Final = Options()

_GIT_LOOKS: Final = ["diff", "log", "show", "diff-tree", "diff-index", "diff-files", "range-diff", "stash", "shortlog", "reflog", "whatchanged", "format-patch", "blame"]  # fmt: skip
_GIT_REMOTES: Final = "fetch pull push ls-remote remote clone submodule fetch-pack send-pack".split()  # noqa: SIM905  # names on a line
_GIT_KEYS: Final = (
    r"(?i)^(alias|pager|filter|credential|gpg|include|includeif|difftool|mergetool|hook|browser|man|sendemail)\."
    r"|^(core|sequence|diff|merge|remote|submodule|protocol|http|ssh|interactive|uploadpack|init|url)\..*"
    r"(pager|editor|command|fsmonitor|hookspath|proxy|askpass|external|textconv|driver|uploadpack|receivepack|vcs"
    r"|update|allow|diff_?filter|hook|templatedir|insteadof|worktree|attributesfile)"
)

RUNS: Final[Mapping[str, Options]] = {
    **{f"git {each}": Options(long=("ext-diff",)) for each in _GIT_LOOKS},
    **{
        f"git {each}": Options(long=("upload-pack", "receive-pack", "exec"), words=_words("foreach"))
        for each in _GIT_REMOTES
    },
    "git clone": Options("uc", ("upload-pack", "config", "template", "recurse-submodules")),
    "git grep": Options("O", ("open-files-in-pager", "ext-grep")),
    "git archive": Options(long=("exec", "remote")),
    "git bisect": Options(words=_words("run")),
    "git rebase": Options("x", ("exec",)),
    "git config": Options(pattern=_GIT_KEYS),
    "ack": Options(long=("pager",)),
    "cargo": Options(long=("config",)),
    "docker": Options(words=_words("run exec start build buildx compose create debug attach cp")),
    "fd": Options("xX", ("exec", "exec-batch")),
    "fdfind": Options("xX", ("exec", "exec-batch")),
    "gh": Options(words=_words("alias extension ext codespace")),
    "go": Options(pattern=r"^--?(exec|toolexec|vettool)(=|$)"),
    "kubectl": Options(words=_words("exec run debug edit cp attach plugin")),
    "less": Options("k", ("lesskey-file", "lesskey-src"), pattern=r"^\+"),
    "make": Options("f", ("eval", "file", "makefile"), pattern=r"^(SHELL|\.SHELLFLAGS|MAKE\w*)\s*[:+?!]*="),
    "man": Options("PHC", ("pager", "html", "config-file", "preprocessor")),
    "more": Options(pattern=r"^\+"),
    "mysql": Options(long=("pager",), pattern=r"(?i)\\!|\bsystem\b|outfile|dumpfile"),
    "npm": Options(long=("script-shell", "node-options", "userconfig", "globalconfig", "shell")),
    "nmap": Options(long=("script",), pattern=r"^--?(sC|A)"),
    "podman": Options(words=_words("run exec start build compose create attach cp")),
    "psql": Options("f", ("file",), pattern=r"(?i)\\!|\\o|\bprogram\b|\\copy|\\g"),
    "rg": Options(long=("pre", "hostname-bin")),
    "rsync": Options("e", ("rsh", "rsync-path")),
    "scp": Options("SoFD"),
    "sftp": Options("SoFDb"),
    "sort": Options(long=("compress-program",)),
    "sqlite3": Options(pattern=r"(?i)^\s*\.|\n\s*\.|^-(cmd|init|A)|load_extension|writefile|\bedit\s*\("),
    "tar": Options(
        "IF",
        ("use-compress-program", "checkpoint-action", "to-command", "rsh-command", "rmt-command", "info-script",
         "new-volume-script", "auto-compress"),
        pattern=r"^[cxtrud][a-zA-Z]*[IF][a-zA-Z]*$",
    ),
    "wget": Options("e", ("execute", "use-askpass")),
    "zip": Options(long=("unzip-command",), pattern="^-[a-zA-Z]*TT"),
}  # fmt: skip
"""Options that run another program, by the program or the subcommand."""

WRITES: Final[Mapping[str, Options]] = {
    **{f"git {each}": Options(long=("output",)) for each in _GIT_LOOKS},
    "git format-patch": Options("o", ("output", "output-directory")),
    "git archive": Options("o", ("output",)),
    "git branch": Options("dDmMcCf", ("delete", "move", "copy", "force", "edit-description", "set-upstream-to")),
    "git config": Options(
        "e",
        ("add", "unset", "unset-all", "replace-all", "edit", "rename-section", "remove-section"),
        operands=2,
    ),
    "git remote": Options(words=_words("add set-url remove rm rename set-head prune update")),
    "git stash": Options(words=_words("drop clear pop apply push save store branch create")),
    "git tag": Options("dfsuFam", ("delete", "force", "sign", "local-user", "file", "annotate", "message")),
    "cmake": Options("EP"),
    "curl": Options(
        "oODcKTJ",
        ("output", "output-dir", "remote-name", "remote-name-all", "dump-header", "cookie-jar", "config",
         "upload-file", "trace", "trace-ascii", "stderr", "libcurl", "hsts", "alt-svc", "etag-save", "remove-on-error"),
    ),
    "file": Options("C", ("compile",)),
    "find": Options(
        words=_words("-delete -fprint -fprint0 -fprintf -fls -exec -execdir -ok -okdir"),
    ),
    "go": Options(
        pattern=r"^--?(o|c|w|u|\w*profile|outputdir|overlay|modfile|trace|fix)(=|$)|^(install|get|clean|mod|fmt|fix)$"
    ),
    "jq": Options("i", ("in-place",)),
    "less": Options("oO", ("log-file", "LOG-FILE")),
    "openssl": Options(pattern="^-(out|keyout|writerand|engine|provider)"),
    "shuf": Options("o", ("output",)),
    "sort": Options("o", ("output",)),
    "tree": Options("oR"),
    "uniq": Options(operands=1),
    "wget": Options("OoaP", ("output-document", "output-file", "append-output", "directory-prefix", "save-cookies")),
    "xmllint": Options("o", ("output",)),
    "xxd": Options(operands=1),
    "yq": Options("i", ("inplace", "in-place", "split-exp", "split-exp-file")),
}  # fmt: skip
"""Options that write a file, by the program or the subcommand."""

_SED_SAFE: Final = re.compile(
    r"""\s*+ (?: (?:\d++|\$|/[^/\\\n]*+/) (?:,\s*+(?:\d++|\$|[+~]\d++|/[^/\\\n]*+/))? )? \s*+ !?+ \s*+
        (?: [dDgGhHnNpPqQxl={}] | [aic][^\n]*+ | y/[^/\\\n]*+/[^/\\\n]*+/ | s([/|,\#:@])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpIi\d]*+ | ) \s*+ """,
    re.VERBOSE,
)
"""One command of sed that neither writes nor runs nor reads another file.

Its groups are not possessive: Python before 3.11.5 loses matches of such groups.
"""
_IN_PLACE: Final = re.compile(r"--i|-[^-fe]*i")
_AWK_ACTS: Final = re.compile(r"system|getline|[|>@]")


def find_acting(name: str, words: Sequence[str]) -> tuple[list[int], bool]:
    """The numbers of the words by which a program writes or runs, and whether one runs what its words do not show."""
    keys = (name, *_subcommands(name, words))
    running = {number for key in keys for number in RUNS.get(key, _NONE).find(words)}
    writing = {number for key in keys for number in WRITES.get(key, _NONE).find(words)}
    if name in {"sed", "gsed"}:
        writing |= {*_sed(words)}
        running |= {number for number in writing if not _IN_PLACE.match(words[number])}
    elif name in _AWKS:
        writing |= {*_awk(words)}
        running |= {number for number in writing if words[number].startswith("-")}
    return sorted(running | writing), bool(running)


_AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})


def _subcommands(name: str, words: Sequence[str]) -> Iterator[str]:
    if name == "git":
        # Which of them it is, options before it hide: all of them may be meant.
        yield from (f"git {word}" for word in words if not word.startswith("-"))


def _sed(words: Sequence[str]) -> Iterator[int]:
    """What changes files in place, and scripts that may write or run; a script in a file is one that nobody reads."""
    scripts: list[int] = []
    operands: list[int] = []
    has_script = awaited = False
    for number, word in enumerate(words):
        if awaited:
            scripts.append(number)
            awaited = False
        elif word.startswith("--"):
            option = word[2:].partition("=")[0]
            if option and any(each.startswith(option) for each in ("in-place", "file")):
                yield number
                has_script = has_script or "file".startswith(option)
            elif option and "expression".startswith(option):
                has_script = True
                if "=" in word:
                    if not _is_safe_script(word.partition("=")[2]):
                        yield number
                else:
                    awaited = True
        elif word.startswith("-") and len(word) > 1:
            letters, has_expression, value = word[1:].partition("e")
            if "i" in letters or "f" in letters:
                yield number
                has_script = has_script or "f" in letters
            elif has_expression:
                has_script = True
                if not value:
                    awaited = True
                elif not _is_safe_script(value):
                    yield number
        else:
            operands.append(number)
    if not has_script:
        scripts += operands[:1]
    yield from (number for number in scripts if not _is_safe_script(words[number]))


def _is_safe_script(script: str) -> bool:
    at = 0
    while at < len(script):
        has_expression = _SED_SAFE.match(script, at)
        if has_expression is None:
            return False
        at = has_expression.end()
        if at < len(script):
            if script[at] in ";\n":
                at += 1
            elif script[at - 1] not in "{ " and script[at] != "}":
                return False
    return True


def _awk(words: Sequence[str]) -> Iterator[int]:
    for number, word in enumerate(words):
        if word.startswith("--"):
            if any(
                each.startswith(word[2:].partition("=")[0]) for each in ("file", "include", "load", "exec", "source")
            ):
                yield number
        elif (word.startswith("-") and not set("filEeDdop").isdisjoint(word[1:2])) or _AWK_ACTS.search(word):
            yield number
