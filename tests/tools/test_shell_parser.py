"""Which programs a command line runs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.tools.shell_parser import MAX_LENGTH, command_of_words, parse_command


def segments_of(command):
    """The segments, those that run what cannot be seen with a `!` behind them."""
    return [f"{segment}{'!' * segment.opaque}" for segment in command.segments]


CLEAR = [
    ("git status", ["git status"]),
    ("a && b | c; d & e || f", ["a", "b", "c", "d", "e", "f"]),
    ("a\nb \\\n  c", ["a", "b c"]),
    ("echo ';' \"&&\" \\| x", ["echo ; && | x"]),
    ("r'm' -\"rf\" \\x", ["rm -rf x"]),
    ("ls 2>&1 >/dev/null </dev/null 2>&-", ["ls"]),
    ("ls # rm x\nb", ["ls", "b"]),
    ("echo a#b", ["echo a#b"]),
    ("! grep x f", ["grep x f"]),
    ("ls *.py ~ {a} ?", ["ls *.py ~ {a} ?"]),
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
    assert (segments_of(command), command.unclear) == (segments, "")


def opaque_or_unclear(line):
    command = parse_command(line)
    return bool(command.unclear) or any(segment.opaque for segment in command.segments)


LAUNCHERS = """
    flock f -c 'rm x' | chrt -f 1 rm x | setarch x86_64 rm x | linux32 rm x | linux64 rm x | i386 rm x | i686 rm x
    prlimit --nproc=1 rm x | choom -n 0 rm x | sg root 'rm x' | ssh-agent rm x | capsh -- -c 'rm x' | ld.so /bin/rm x
    /lib64/ld-linux-x86-64.so.2 /bin/rm x | /lib/ld-musl-x86_64.so.1 /bin/rm x | git grep -O'rm' x
    git grep --open-files='rm x' x | git difftool -x 'rm x' | git difftool --extcmd='rm x' | git difftool -y
    git clone -u 'rm x' a b | git clone --upload-pa='rm x' a b | git clone -c core.sshCommand='rm x' a
    git -c alias.x='!rm x' x | git -c core.pager='rm x' log | git --exec-path=. x | git fetch --upload-pack='rm x'
    git log --ext-diff | git config alias.x '!rm x' | git config core.pager 'rm x' | git rebase --exec 'rm x' a
    git rebase -x 'rm x' a | git bisect run rm x | git submodule foreach rm x | git filter-branch --tree-filter 'rm x'
    git archive --remote=x --exec='rm x' a | tar -I 'rm x' -xf a | tar cIf 'rm x' a b | tar --use-compress='rm x' -xf a
    tar xf a --checkpoint=1 --checkpoint-action=exec='rm x' | tar xf a --to-command='rm x' | sed '1e rm x' a
    sed 's/a/rm x/e' a | sed -n -e p -e '1e rm x' a | sed --expression='e rm x' a | sed -f script a
    vim -c '!rm x' | vi -c ':!rm x' | ex a | ed a | emacs --batch a | nvim a | sqlite3 a '.shell rm x'
    sqlite3 -cmd '.shell rm x' a | sqlite3 a "select load_extension('x')" | psql -c '\\! rm x' | python -m timeit 'x'
    python3 -m pdb x.py | python -mtimeit x | perl -e 'x' | ruby -e x | awk 'BEGIN{system("rm x")}' | awk -f x
    awk 'BEGIN{"rm x"|getline}' | ssh -o ProxyCommand='rm x' a | rsync -e 'rm x' a b | rsync --rsh='rm x' a b
    scp -S prog a b | man -P 'rm x' ls | less +'!rm x' a | gdb -ex 'shell rm x' | make SHELL=x | make --eval='x' | make -f x
    npx -c 'rm x' | npm exec -c 'rm x' | npm test --script-shell=x | env -S 'rm x' | ls | parallel rm x | watch rm x
    script -c 'rm x' | nsenter -t 1 rm x | unshare rm x | runuser -c 'rm x' | su -c 'rm x' | expect -c 'x'
    socat - EXEC:'rm x' | nc -e rm a 1 | zip a b -TT 'rm x' | zip a b --unzip-command='rm x' | nmap --script x a
    cargo --config x test | go test -exec 'rm x' | go vet -vettool=x | fd -x rm | fd . --exec rm | rg --pre rm x
    docker run a rm x | kubectl exec a rm x | sort --compress-program=x a | wget --use-askpass=x a | unbuffer rm x
""".replace("ls | parallel", "parallel")


@pytest.mark.parametrize("line", [each.strip() for each in re.split(r" \| |\n", LAUNCHERS) if each.strip()])
def test_a_launcher_is_seen(line):
    """Whoever denies rm is asked: it is listed, or it is said that not all is."""
    listed = any(segment.words[0].text.rpartition("/")[2] == "rm" for segment in parse_command(line).segments)
    assert listed or opaque_or_unclear(line)


@pytest.mark.parametrize(
    "line",
    [
        "npx rm x", "npx -y rm x", "npm exec -- rm x", "uv run rm x", "uv run --with a rm x", "poetry run rm x",
        "bundle exec rm x", "flock f rm x", "env nice uv run env rm x",
    ],
)  # fmt: skip
def test_what_a_package_manager_runs_is_listed(line):
    assert any(str(segment) == "rm x" for segment in parse_command(line).segments)


def test_a_program_is_never_named_as_an_option():
    for line in ("flock f -c 'rm x'", "timeout 5 -x rm", "chroot / --userspec=x rm"):
        command = parse_command(line)
        assert command.unclear
        assert not any(segment.words[0].text.startswith("-") for segment in command.segments)


def test_package_managers_in_package_managers_end():
    for line in ("npx " * 2000 + "rm", "npx -y " * 2000 + "rm", "uv run --with npx -y " * 500):
        assert len(parse_command(line).segments) < 100


@pytest.mark.parametrize(
    "line",
    [
        "git diff -w HEAD~1 -- src", "git log --oneline -n 5", "git show --stat", "git grep -n x", "git status -sb",
        "find . -name '*.py' -type f", "sed -n '1,20p' a", "sed 's/a/b/g' a", "sed -n '/x/,/y/p;$d' a",
        "sed -e 's|a|b|' -e '3d' a", "sed '/x/{n;d}' a", "sed '5a some words' a", "sort -rnk2 a", "ls -la", "cat a b",
        "grep -rn x src", "rg -n 'a|b' src", "tar -tzf a.tgz", "curl -sS http://localhost", "awk '{ print $1 }' a",
        "jq .a b.json", "head -5 a", "wc -l a", "go test ./...", "cargo test", "npm test", "python x.py", "make test",
        "pytest -q -x", "python -m pytest -q", "git branch -vv", "git config user.name", "uniq -c a", "tree -L 2",
    ],
)  # fmt: skip
def test_an_ordinary_command_only_looks(line):
    """No word of it is taken for one that writes or runs."""
    command = parse_command(line)
    assert command.unclear == ""
    assert not any(segment.acting or segment.opaque for segment in command.segments)


VARIABLE = "it has a variable or a substitution"
GROUP = "it has a subshell or a substitution"
COMPOUND = "it has a compound command"
FILE = "it reads or writes a file"
DIFFERS = "bash and dash read it differently"
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
        ("ls &> x", ["ls"], DIFFERS),
        ("cat < x", ["cat"], FILE),
        ("ls >& x", ["ls"], FILE),
        ("ls > *", ["ls"], FILE),
        ("ls >", ["ls"], "a redirection goes nowhere"),
        ("cat <<E\nrm x\nE\nls", ["cat"], DOCUMENT),
        ("cat <<-'E F' | b\n\trm x\n\tE F\nls", ["cat"], DOCUMENT),
        ("cat <<E", ["cat"], DOCUMENT),
        ("cat <<< x", ["cat"], DOCUMENT),
        ("diff <(rm x) y", ["diff", "rm x", "y"], "a redirection goes nowhere"),
        ("r* x", ["r* x"], "which program it runs is not certain"),
        ("{rm,x}", ["{rm,x}"], DIFFERS),
        ("git status &>/dev/null touch X", ["git status", "touch X"], DIFFERS),
        ("ls &>>/dev/null rm", ["ls", "rm"], DIFFERS),
        ("a |& b", ["a", "b"], DIFFERS),
        ("ls {a,b}", ["ls {a,b}"], DIFFERS),
        ("ls {fd}>/dev/null", ["ls {fd}"], DIFFERS),
        ("ls 10>/dev/null", ["ls"], FILE),
        ("ls >&/dev/null", ["ls"], FILE),
        ("ls 2>&1-", ["ls"], FILE),
        ("ls > >/dev/null", ["ls"], "a redirection goes nowhere"),
        ("rm x''1>/dev/null", ["rm x1"], ""),
        ("ls 2\\\n>/dev/null", ["ls 2"], "a word goes over two lines"),
        ("a[b[0]]=x rm y", ["rm y"], "it sets a variable"),
        ("a['b']=x rm y", ["rm y"], "it sets a variable"),
        ("ls\u00a0-l", ["ls\u00a0-l"], "it has a control character"),
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
    assert segments_of(command) == segments


@pytest.mark.parametrize("line", ["ls", " ls -l\n", "ls 2>&1 >/dev/null", "nohup ls", "ls \\\n  -l", "ls # a & b"])
def test_a_simple_command(line):
    assert parse_command(line).simple


@pytest.mark.parametrize(
    "line", ["a;", "a; b", "a && b", "a || b", "a | b", "a &", "a\nb", "! a", "(a)", "sh -c 'a; b'", "eval a '&'"]
)
def test_not_a_simple_command(line):
    assert not parse_command(line).simple


def test_words_that_no_shell_looks_at():
    assert segments_of(command_of_words(["echo", ";", "$x", "*"])) == ["echo ; $x *"]
    assert command_of_words(["echo", "$x"]).unclear == ""
    assert segments_of(command_of_words(["env", "sh", "-c", "rm x"]))[0] == "rm x"


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
