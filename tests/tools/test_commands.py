"""Which programs a command line runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.tools.commands import MAX_LENGTH, of_words, parse_command


def told(command):
    """The segments, those that run what cannot be seen with a `!` behind them."""
    return [f"{segment}{'!' * segment.opaque}" for segment in command.segments]


CLEAR = [
    ("git status", ["git status"]),
    ("a && b | c; d & e || f", ["a", "b", "c", "d", "e", "f"]),
    ("a\nb \\\n  c", ["a", "b c"]),
    ("a |& b", ["a", "b"]),
    ("echo ';' \"&&\" \\| x", ["echo ; && | x"]),
    ("r'm' -\"rf\" \\x", ["rm -rf x"]),
    ("ls 2>&1 >/dev/null </dev/null 2>&-", ["ls"]),
    ("ls # rm x\nb", ["ls", "b"]),
    ("echo a#b", ["echo a#b"]),
    ("! grep x f", ["grep x f"]),
    ("ls *.py ~ {a,b} ?", ["ls *.py ~ {a,b} ?"]),
    ("[ -f x ] && cat x", ["[ -f x ]", "cat x"]),
    ('echo "a \\$HOME \\` \\" \\n"', ['echo a $HOME ` " \\n']),
    ("echo '$HOME'", ["echo $HOME"]),
    ("", []),
    ("  # nothing", []),
    # What runs others stands behind them.
    ("nohup rm x", ["rm x", "nohup rm x"]),
    ("timeout -k 5 10 rm x", ["rm x", "timeout -k 5 10 rm x"]),
    ("timeout --foreground 10 rm x", ["rm x", "timeout --foreground 10 rm x"]),
    ("nice -n 5 ionice -c2 rm", ["rm", "ionice -c2 rm", "nice -n 5 ionice -c2 rm"]),
    ("sudo -u root -- rm x", ["rm x", "sudo -u root -- rm x"]),
    ("env -i -u A rm", ["rm", "env -i -u A rm"]),
    ("time -p rm", ["rm", "time -p rm"]),
    ("exec rm", ["rm", "exec rm"]),
    ("command -v rm", ["rm", "command -v rm"]),
    ("ls | xargs -0 -n 1 rm -f", ["ls", "rm -f ", "xargs -0 -n 1 rm -f"]),
    ("xargs -I{} mv {} {}.old", ["mv {} {}.old ", "xargs -I{} mv {} {}.old"]),
    ("sh -c 'rm x; ls'", ["rm x", "ls", "sh -c rm x; ls"]),
    ("bash -lc \"rm 'a b'\"", ["rm a b", "bash -lc rm 'a b'"]),
    ("env bash -c 'sh -c \"rm x\"'", ["rm x", "sh -c rm x", 'bash -c sh -c "rm x"', 'env bash -c sh -c "rm x"']),
    ("eval 'rm x' ';' ls", ["rm x", "ls", "eval rm x ; ls"]),
    ("sh x.sh", ["sh x.sh"]),
    (
        "find . -name '*.py' -exec rm {} \\; -ok ls + -print",
        ["rm {}", "ls", "find . -name *.py -exec rm {} ; -ok ls + -print"],
    ),
    # What these run is not seen.
    ("python3.12 -c 'import os'", ["python3.12 -c import os!"]),
    ("perl -ne print", ["perl -ne print!"]),
    ("python x.py", ["python x.py"]),
    ("ssh host ls", ["ssh host ls!"]),
    ("git -c alias.x=!rm x", ["git -c alias.x=!rm x!"]),
    ("git bisect run rm", ["git bisect run rm!"]),
    ("rg --pre-command=rm x", ["rg --pre-command=rm x!"]),
    ("awk 'BEGIN { system(\"rm\") }'", ['awk BEGIN { system("rm") }!']),
    ("awk '{ print $1 }' f", ["awk { print $1 } f"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "segments"), CLEAR)
def test_what_is_read_for_sure(line, segments):
    command = parse_command(line)
    assert (told(command), command.unclear) == (segments, "")


VARIABLE = "it has a variable or a substitution"
GROUP = "it has a subshell or a substitution"
COMPOUND = "it has a compound command"
FILE = "it reads or writes a file"
DOCUMENT = "it has a document in it"


@pytest.mark.parametrize(
    ("line", "segments", "unclear"),
    [
        ("echo $HOME", ["echo $HOME"], VARIABLE),
        ('echo "a $HOME"', ["echo a $HOME"], VARIABLE),
        ("echo $(rm x)", ["echo $", "rm x"], VARIABLE),
        ('echo "$(rm x)"', ["echo $(rm x)"], VARIABLE),
        ("echo `rm x`", ["echo", "rm x"], GROUP),
        ("(rm x)", ["rm x"], GROUP),
        ("f() { rm x; }", ["f", "rm x"], GROUP),
        ("{ rm x; }", ["rm x"], COMPOUND),
        ("if true; then rm x; else ls; fi", ["true", "rm x", "ls"], COMPOUND),
        ("for x in a b; do rm y; done", ["rm y"], COMPOUND),
        ("while rm x; do ls; done", ["rm x", "ls"], COMPOUND),
        ("[[ -f x ]] && rm x", ["rm x"], COMPOUND),
        ("time ! rm", ["rm", "! rm", "time ! rm"], COMPOUND),
        ("time coproc rm", ["rm", "coproc rm", "time coproc rm"], COMPOUND),
        ("A=b rm x", ["rm x"], "it sets a variable"),
        ("A='b c' B=\"d\" rm x", ["rm x"], "it sets a variable"),
        ("env A=b rm x", ["rm x", "env A=b rm x"], "it sets a variable"),
        ("'A=b' rm x", ["A=b rm x"], ""),
        ("git status > x", ["git status"], FILE),
        ("git status >>x 2>&1", ["git status"], FILE),
        ("ls &> x", ["ls"], FILE),
        ("cat < x", ["cat"], FILE),
        ("ls >& x", ["ls"], FILE),
        ("ls > *", ["ls"], FILE),
        ("ls >", ["ls"], "a redirection goes nowhere"),
        ("cat <<E\nrm x\nE\nls", ["cat", "ls"], DOCUMENT),
        ("cat <<-'E F' | b\n\trm x\n\tE F\nls", ["cat", "b", "ls"], DOCUMENT),
        ("cat <<E", ["cat"], DOCUMENT),
        ("cat <<< x", ["cat"], DOCUMENT),
        ("diff <(rm x) y", ["diff", "rm x", "y"], "a redirection goes nowhere"),
        ("r* x", ["r* x"], "which program it runs is not certain"),
        ("{rm,x}", ["{rm,x}"], "which program it runs is not certain"),
        ("'' x", [" x"], "which program it runs is not certain"),
        ("export PATH=.; git status", ["export PATH=.", "git status"], "export changes what other words mean"),
        (". x", [". x"], ". changes what other words mean"),
        ("printf -v PATH .", ["printf -v PATH ."], "printf changes what other words mean"),
        ("ls | sh", ["ls", "sh"], "what sh runs is not certain"),
        ("bash --rcfile x -c ls", ["bash --rcfile x -c ls"], "what bash runs is not certain"),
        ("sh /dev/stdin", ["sh /dev/stdin"], "what sh runs is not certain"),
        ("env -S 'rm x'", ["env -S rm x"], "what env runs is not certain"),
        ("env - rm x", ["env - rm x"], "what env runs is not certain"),
        ("timeout --kill-after=5 10 rm", ["timeout --kill-after=5 10 rm"], "what timeout runs is not certain"),
        ("find *.d -exec rm {} +", ["rm {}", "find *.d -exec rm {} +"], "what find runs is not certain"),
        ("find *.d -name x", ["find *.d -name x"], ""),
        ("echo 'x", ["echo '"], "a quote is not closed"),
        ('echo "x', ['echo "'], "a quote is not closed"),
        ("echo x\\", ["echo x\\"], "its end is missing"),
        ("echo\rrm", ["echo\rrm"], "it has a control character"),
        ("echo \x00", ["echo \x00"], "it has a control character"),
        ("x" * (MAX_LENGTH + 1), [], "it is too long"),
    ],
)
def test_what_is_not_read_for_sure(line, segments, unclear):
    command = parse_command(line)
    assert command.unclear == unclear
    assert told(command) == segments


def test_words_that_no_shell_looks_at():
    assert told(of_words(["echo", ";", "$x", "*"])) == ["echo ; $x *"]
    assert of_words(["echo", "$x"]).unclear == ""
    assert told(of_words(["env", "sh", "-c", "rm x"]))[0] == "rm x"


@pytest.mark.parametrize("wrapper", ["nohup ", "env ", "exec ", "sh -c ", "eval "])
def test_commands_in_commands_end(wrapper):
    command = parse_command(wrapper * 20_000 + "rm")
    assert command.unclear or any(segment.opaque for segment in command.segments)
    assert len(command.segments) < 20


@given(st.text(alphabet=" \n\t\\'\"$`;|&()<>#*?[]{}~!=-abrm01\x00é", max_size=60))
def test_any_text_is_read(text):
    command = parse_command(text)
    assert all(segment.words for segment in command.segments)
    assert parse_command(text) == command


@given(st.lists(st.text(alphabet="ab'\"$;| *\\", min_size=1), min_size=1, max_size=5))
def test_what_is_quoted_comes_out_as_it_was(words):
    import shlex

    (segment,) = parse_command(f"x {shlex.join(words)}").segments
    assert [word.text for word in segment.words[1:]] == words
    assert all(word.certain for word in segment.words)
