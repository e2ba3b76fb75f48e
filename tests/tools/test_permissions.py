from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import Ensemble, Invoker, tool
from callboard.errors import CallerError
from callboard.tools import InvokerRegistry, Policy, Rule


def invoker(name, ensemble="", *, approval=False):
    @tool(name=name, approval=approval)
    def act() -> None:
        """Act."""

    return Ensemble(ensemble, [act]).access_invoker(name) if ensemble else Invoker.of(act)


DELETE = invoker("delete_file", "io")
READ = invoker("read_file", "io")
DEPLOY = invoker("deploy", "ci", approval=True)
LOOSE = invoker("read_file")


@table(
    ("rules", "asked", "permission", "why"),
    [
        ([], READ, "allow", "no rule forbids it"),
        ([], DEPLOY, "ask", "deploy always needs approval"),
        ([("*", "deny")], READ, "deny", "the rule '*' says deny"),
        ([("read_*", "ask")], READ, "ask", "the rule 'read_*' says ask"),
        ([("read_*", "ask")], DELETE, "allow", "no rule forbids it"),
        ([("io/*", "deny")], DELETE, "deny", "the rule 'io/*' says deny"),
        ([("io/*", "deny")], DEPLOY, "ask", "deploy always needs approval"),
        ([("io/*", "deny")], LOOSE, "allow", "no rule forbids it"),
        ([("READ_*", "deny")], READ, "allow", "no rule forbids it"),
        ([("*", "deny"), ("read_*", "allow")], READ, "allow", "the rule 'read_*' says allow"),
        ([("*", "deny"), ("read_*", "allow")], DELETE, "deny", "the rule '*' says deny"),
        ([("read_*", "allow"), ("*", "deny")], READ, "deny", "the rule '*' says deny"),
        ([("deploy", "allow")], DEPLOY, "allow", "the rule 'deploy' says allow"),
        ([("[dr]e*_file", "ask")], DELETE, "ask", "the rule '[dr]e*_file' says ask"),
    ],
)
def test_the_last_rule_that_matches_decides(rules, asked, permission, why):
    decision = Policy(rules).decide(asked)
    assert (decision.permission, decision.why) == (permission, why)
    assert Policy([Rule(*rule) for rule in rules]).decide(asked) == decision


# What calls are about.


def shell(name="bash", *, approval=False):
    @tool(name=name, approval=approval, subjects={"command": "command", "cwd": "path"}, cli={"-C": "cwd"})
    def run(command: str | list[str], cwd: str | None = None) -> str:
        return f"{command} in {cwd}"

    return Invoker.of(run)


@tool(name="file", subjects={"path": "path", "paths": "path"}, cli={"-f": "path"})
def edit(action: str, path: str = "notes.md", paths: list[str] | None = None) -> str:
    return f"{action} {path} {paths}"


FILE = Invoker.of(edit)
GIT = [("bash", "ask"), ("bash(git status*)", "allow"), ("bash(git log)", "allow"), ("bash(ls *)", "allow")]


@table(
    ("command", "permission"),
    [
        ("git status", "allow"),
        ("git status -s --porcelain", "allow"),
        ("/usr/bin/git status", "allow"),
        ("git log", "allow"),
        ("git status && git log | ls", "ask"),
        ("git status 2>&1 >/dev/null", "allow"),
        ("ls", "allow"),
        ("ls *.py ~/x", "allow"),
        ("git log --oneline", "ask"),
        ("./git status", "ask"),
        ("x/bin/git status", "ask"),
        ("git commit", "ask"),
        ("git", "ask"),
        ("git 'status; rm' ", "allow"),
        ("git status; rm x", "ask"),
        ("git status\nrm x", "ask"),
        ("git status & rm x", "ask"),
        ("git status | sh", "ask"),
        ("git status > .bashrc", "ask"),
        ("git status $(rm x)", "ask"),
        ("PATH=. git status", "ask"),
        ("git -c core.fsmonitor=x status", "ask"),
        ("sudo git status", "ask"),
        ("git statu?", "ask"),
        ("git {status,push}", "ask"),
        ("git 'status", "ask"),
        ("ls | xargs rm", "ask"),
        (["git", "status", ";", "rm"], "allow"),
        (["rm", "git", "status"], "ask"),
        ("", "ask"),
    ],
)
def test_a_pattern_allows_one_simple_command(command, permission):
    assert Policy(GIT).decide(shell(), {"command": command})[0] == permission


DENY = [("bash", "allow"), ("bash(rm*)", "deny"), ("bash(git push)", "deny")]


@table(
    ("command", "permission"),
    [
        ("ls", "allow"),
        ("git log push", "allow"),
        ("git -C x log", "allow"),
        ("ls *.py ~ HEAD~1", "allow"),
        ("echo a 2>&1 >/dev/null", "allow"),
        ("rm x", "deny"),
        ("./rm", "deny"),
        ("r\\m x", "deny"),
        ("/bin/r'm' x", "deny"),
        (["rm", "x"], "deny"),
        ("git push origin --force", "deny"),
        ("git status | cat", "ask"),
        ("ls; /bin/rm x", "ask"),
        ("ls && nohup env rm x", "ask"),
        ("ls | xargs rm", "ask"),
        ("echo $(rm x)", "ask"),
        ("A=b rm x", "ask"),
        ("echo rm", "ask"),
        (["nohup", "rm"], "ask"),
        ("sh -c 'ls; rm x'", "ask"),
        ("sh -c 'ls'", "ask"),
        ("find . -exec rm {} +", "ask"),
        ("git -C x push", "ask"),
        ("git --no-pager push", "ask"),
        ("git $x", "ask"),
        ("git pu*", "ask"),
        ("r* x", "ask"),
        ("$x", "ask"),
        ("ls | sh", "ask"),
        ("ssh host rm x", "ask"),
        ("env -S 'rm x'", "ask"),
        ('echo "$(rm x)"', "ask"),
        ("echo 'x", "ask"),
        ("echo {rm,x}", "ask"),
        ("rm x > y", "ask"),
        (3, "ask"),
        ([], "ask"),
    ],
)
def test_a_command_that_may_run_what_is_denied_is_not_allowed(command, permission):
    assert Policy(DENY).decide(shell(), {"command": command})[0] == permission


LAUNCHERS = [
    "flock f -c 'rm x'", "chrt -f 1 rm x", "setarch x86_64 rm x", "linux32 rm x", "linux64 rm x", "i386 rm x",
    "i686 rm x", "prlimit --nproc=1 rm x", "choom -n 0 rm x", "sg root 'rm x'", "ssh-agent rm x",
    "capsh -- -c 'rm x'", "ld.so /bin/rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "/lib/ld-musl-x86_64.so.1 /bin/rm x", "git grep -O'rm' x", "git grep --open-files='rm x' x",
    "git difftool -x 'rm x'", "git difftool --extcmd='rm x'", "git clone -u 'rm x' a b",
    "git clone --upload-pa='rm x' a b", "git clone -c core.sshCommand='rm x' a", "git -c alias.x='!rm x' x",
    "git -c core.pager='rm x' log", "git fetch --upload-pack='rm x'", "git config alias.x '!rm x'",
    "git config core.pager 'rm x'", "git rebase --exec 'rm x' a", "git rebase -x 'rm x' a",
    "git bisect run rm x", "git submodule foreach rm x", "git filter-branch --tree-filter 'rm x'",
    "git archive --remote=x --exec='rm x' a", "tar -I 'rm x' -xf a", "tar cIf 'rm x' a b",
    "tar --use-compress='rm x' -xf a", "tar xf a --checkpoint=1 --checkpoint-action=exec='rm x'",
    "tar xf a --to-command='rm x'", "sed '1e rm x' a", "sed 's/a/rm x/e' a", "sed -n -e p -e '1e rm x' a",
    "sed --expression='e rm x' a", "vim -c '!rm x'", "vi -c ':!rm x'", "sqlite3 a '.shell rm x'",
    "sqlite3 -cmd '.shell rm x' a", "psql -c '\\\\! rm x'", 'awk \'BEGIN{system("rm x")}\'',
    'awk \'BEGIN{"rm x"|getline}\'', "ssh -o ProxyCommand='rm x' a", "rsync -e 'rm x' a b",
    "rsync --rsh='rm x' a b", "man -P 'rm x' ls", "less +'!rm x' a", "gdb -ex 'shell rm x'", "npx -c 'rm x'",
    "npm exec -c 'rm x'", "env -S 'rm x'", "parallel rm x", "watch rm x", "script -c 'rm x'",
    "nsenter -t 1 rm x", "unshare rm x", "runuser -c 'rm x'", "su -c 'rm x'", "socat - EXEC:'rm x'",
    "nc -e rm a 1", "zip a b -TT 'rm x'", "zip a b --unzip-command='rm x'", "go test -exec 'rm x'",
    "fd -x rm", "fd . --exec rm", "rg --pre rm x", "docker run a rm x", "kubectl exec a rm x",
    "unbuffer rm x",
]  # fmt: skip


@table("command", LAUNCHERS)
def test_a_launcher_is_seen(command):
    """Whoever denies rm is asked about a program that may run it."""
    assert Policy([("bash", "allow"), ("bash(rm*)", "deny")]).decide(shell(), {"command": command})[0] != "allow"


ROOT = "/home/me/project"


@table(
    ("pattern", "path", "matches", "of_root"),
    [
        ("src/**", "src/a.py", "yes", "yes"),
        ("src/**", "src/a/b/c.py", "yes", "yes"),
        ("src/**", "src", "yes", "yes"),
        ("src/**", "./src//a/../b", "yes", "yes"),
        ("src/**", "src/../etc", "no", "no"),
        ("src/**", "srcs/a", "no", "no"),
        ("src/*", "src/a/b", "no", "no"),
        ("src/*", "src/.env", "yes", "yes"),
        ("*.py", "a.py", "yes", "yes"),
        ("*.py", "src/a.py", "no", "no"),
        ("**/*.py", "src/a.py", "yes", "yes"),
        ("**/*.py", "a.py", "yes", "yes"),
        ("**/secret/**", "a/secret/b/c", "yes", "yes"),
        ("etc", "src/../etc", "yes", "yes"),
        ("**", "../x", "maybe", "maybe"),
        ("**", "src/../../x", "maybe", "maybe"),
        ("src/**", "../project/src/a", "maybe", "yes"),
        ("src/**", "../other/src/a", "maybe", "maybe"),
        ("src/**", f"{ROOT}/src/a", "maybe", "yes"),
        ("src/**", "/etc/passwd", "no", "no"),
        ("/etc/**", "/etc/passwd", "yes", "yes"),
        ("/etc/**", "/x/../etc/passwd", "yes", "yes"),
        ("/etc/**", "src/a", "maybe", "no"),
        ("/home/me/**", "src/a", "maybe", "yes"),
        ("/etc/**", "../../../etc/passwd", "maybe", "yes"),
        ("a b/*", "a b/c", "yes", "yes"),
    ],
)
def test_paths(pattern, path, matches, of_root):
    for root, answer in (("", matches), (ROOT, of_root)):
        given = {"action": "read", "path": path}
        denied, *_ = Policy([("file", "allow"), (f"file({pattern})", "deny")], root=root).decide(FILE, given)
        assert denied == {"yes": "deny", "maybe": "ask", "no": "allow"}[answer]
        allowed, *_ = Policy([("*", "deny"), (f"file({pattern})", "allow")], root=root).decide(FILE, given)
        assert allowed == ("allow" if answer == "yes" else "deny")


@table(
    ("given", "permission"),
    [
        ({"action": "a"}, "deny"),
        ({"action": "a", "path": "src/a"}, "allow"),
        ({"action": "a", "-f": "src/a"}, "allow"),
        ({"action": "a", "-f": "notes.md"}, "deny"),
        ({"action": "a", "path": "src/a", "paths": ["src/b", "notes.md"]}, "deny"),
        ({"action": "a", "path": "src/a", "paths": '["notes.md"]'}, "deny"),
        ({"action": "a", "path": "src/a", "paths": ["src/b"]}, "allow"),
        ({"action": "a", "path": "src/a", "paths": ["src/b", "lib/x"]}, "ask"),
        ({"action": "a", "path": 3}, "ask"),
        (None, "ask"),
    ],
)
def test_what_is_looked_at_is_what_the_tool_would_get(given, permission):
    policy = Policy([("file", "ask"), ("file(src/**)", "allow"), ("*(notes.md)", "deny")])
    assert policy.decide(FILE, given)[0] == permission


def test_each_subject_of_a_call_counts():
    policy = Policy([("bash", "ask"), ("bash(ls*)", "allow"), ("bash(src/**)", "allow")])
    assert policy.decide(shell(), {"command": "ls", "cwd": "src"})[0] == "allow"
    assert policy.decide(shell(), {"command": "ls", "-C": "lib"})[0] == "ask"


def test_a_tool_without_subjects_has_no_patterns():
    assert Policy([("*(**)", "deny")]).decide(READ, {})[0] == "allow"
    assert Policy([("*", "deny"), ("*(**)", "allow")]).decide(READ, {})[0] == "deny"


@table(
    ("rules", "command", "why"),
    [
        (DENY, "rm x", "the rule 'bash(rm*)' says deny: rm x"),
        (DENY, "git -C . push", "the rule 'bash(git push)' may say deny: git -C . push"),
        (
            DENY,
            "echo $x",
            "the rule 'bash(git push)' may say deny: echo $x is not one simple command",
        ),
        (GIT, "git log", "the rule 'bash(git log)' says allow"),
        (GIT, "rm x", "the rule 'bash' says ask"),
        (DENY, f"rm {'x' * 300}", f"the rule 'bash(rm*)' says deny: rm {'x' * 194}..."),
    ],
)
def test_the_reason_names_the_rule_and_what_it_is_about(rules, command, why):
    assert Policy(rules).decide(shell(), {"command": command})[1] == why


def test_the_last_rule_decides_for_a_command():
    policy = Policy([("bash(rm*)", "deny"), ("bash(rm -i*)", "allow")])
    assert policy.decide(shell(), {"command": "rm -i x"})[0] == "allow"
    assert policy.decide(shell(), {"command": "rm -f x"})[0] == "deny"
    assert Policy([("bash(ls*)", "allow")]).decide(shell(approval=True), {"command": "ls; rm"})[0] == "ask"


@table("pattern", ["bash(rm", "(rm)", "bash()", "bash( )", "file(../x)", "file(a/../b)", "bash(a)b"])
def test_a_pattern_that_cannot_be_is_refused(pattern):
    with pytest.raises(CallerError, match="pattern"):
        Policy([(pattern, "deny")])


# What is denied does not get through.

PROGRAMS = st.sampled_from(["rm", "/bin/rm", "./rm", "r''m", "\\rm", '"rm"', "'rm'", "r\\m", "x/../rm", "rm\\\n"])
OTHERS = st.sampled_from(["ls", "git status", "echo 'a b'", "cat x | sort", "true", "echo rm", "grep -e rm x"])
BETWEEN = st.sampled_from(["; ", " && ", " || ", " | ", " & ", "\n", " |& ", ";", "&&", "|"])
WRAPPED = st.sampled_from(
    [
        "{}", "nohup {}", "env {}", "env -u A {}", "timeout 5 {}", "timeout -k 1 5 {}", "nice -n 3 {}", "sudo {}",
        "sudo -u x {}", "xargs {}", "xargs -0 -n1 {}", "time {}", "exec {}", "command {}", "stdbuf -oL {}",
        "setsid {}", "flock x {}", "busybox {}", "find . -exec {} \\;", "find . -name x -execdir {} +",
        "env A=b {}", "sudo A=b {}", "ssh host {}", "watch {}", "strace {}", "env - {}",
    ]
)  # fmt: skip
"""One program runs another."""
IN_SHELL = st.sampled_from(
    [
        "{}", "A=b {}", "! {}", "({})", "{{ {}; }}", "$({})", "`{}`", "echo $({})", "<({})", "if {}; then ls; fi",
        "while {}; do ls; done", "ls > x; {}", "f() {{ {}; }}; f", "cat <<E\nE\n{}", "ls # x\n{}", "x=$({})",
        "trap x EXIT; {}",
    ]
)  # fmt: skip
"""A line runs another."""
QUOTED = st.sampled_from(
    ["sh -c {}", "bash -lc {}", "bash -e -c {}", "env sh -c {}", "eval {}", "env -S {}", "su -c {}"]
)


@st.composite
def denied_commands(draw):
    """A command line that runs rm somewhere."""
    command = f"{draw(PROGRAMS)} {draw(st.sampled_from(['', 'x', '-rf /', '*.py']))}"
    for _ in range(draw(st.integers(0, 2))):
        command = draw(WRAPPED).format(command)
    for _ in range(draw(st.integers(0, 2))):
        command = draw(IN_SHELL).format(command)
        if draw(st.booleans()):
            command = draw(WRAPPED).format(draw(QUOTED).format(shlex.quote(command)))
    before = [draw(OTHERS) + draw(BETWEEN) for _ in range(draw(st.integers(0, 2)))]
    after = [draw(BETWEEN) + draw(OTHERS) for _ in range(draw(st.integers(0, 2)))]
    return "".join([*before, command, *after])


@given(denied_commands())
def test_no_command_with_a_denied_program_in_it_is_allowed(command):
    invoker = shell()
    assert Policy([("bash", "allow"), ("bash(rm*)", "deny")]).decide(invoker, {"command": command})[0] != "allow"
    allowed = [(f"bash({name}*)", "allow") for name in ("ls", "git", "echo", "cat", "sort", "true", "grep")]
    assert Policy([("bash", "deny"), *allowed]).decide(invoker, {"command": command})[0] != "allow"


@given(st.text(alphabet=" \n\t\\'\"$`;|&()<>#*?[]{}~!=-rmx", max_size=40))
def test_whatever_is_written_around_it_a_denied_program_is_not_allowed_behind_a_line(text):
    """With a rule for each word that may begin a program, no other one runs."""
    command = f"{text}\nrm x"
    permission, *_ = Policy([("bash", "allow"), ("bash(rm*)", "deny")]).decide(shell(), {"command": command})
    # Unless the last line is quoted, or a comment's or a word's continuation.
    if not set(text) & set("'\"\\<"):
        assert permission != "allow"


def test_a_rule_that_may_match_does_not_soften_what_another_denies():
    softened = Policy([("bash(rm)", "deny"), ("bash(rm -f)", "ask"), ("bash(rm -rf)", "deny")])
    permission, why, _ = softened.decide(shell(), {"command": "rm *"})
    assert (permission, why) == ("deny", "the rule 'bash(rm)' says deny: rm *")
    assert Policy([("bash(rm -rf)", "deny")]).decide(shell(), {"command": "rm *"})[0] == "ask"


@table(
    ("rules", "hidden"),
    [
        ([], False),
        ([("delete_file", "deny")], True),
        ([("io/*", "deny")], True),
        ([("*", "deny"), ("delete_file", "ask")], False),
        ([("delete_file", "allow"), ("*", "deny")], True),
        ([("delete_file", "deny"), ("delete_file(tmp/**)", "allow")], False),
        ([("delete_file", "deny"), ("delete_file(src/**)", "deny")], True),
        ([("delete_file(**)", "deny")], False),
        ([("read_file", "deny")], False),
    ],
)
def test_a_tool_of_which_no_call_may_run_is_not_offered_to_models(rules, hidden):
    policy = Policy(rules)
    assert policy.forbids(DELETE) is hidden
    offered = [each.name for each in InvokerRegistry([DELETE.ensemble]).allowed_declarations(policy)]
    assert offered == ([] if hidden else ["delete_file"])


STUBS = ("git", "touch", "rm", "ls", "cat", "env", "x", "status", "2")
TRAPS = [
    "git status &>/dev/null touch X", "git status &>>/dev/null touch X", "git status |& touch X", "git status >& touch X",
    "git status & touch X", "git status\ntouch X", "git status\r\ntouch X", "git status;touch X", "git status $(touch X)",
    "git status `touch X`", 'git status "$(touch X)"', "git status <(touch X)", "git status 2>/dev/null", "git 'status'",
    "git status $'\\'; touch X #'", "git status <<E\n$(touch X)\nE", "git status <<<x", "git status {fd}>/dev/null",
    "git status # ;\ntouch X", "git\\\n status", "A=1 git status", "a[0]=1 git status", "a[b[0]]=1 touch X", "git+=x touch X",
    "git status \\\n&& touch X", "git status 2>&1", "git status ''2>/dev/null", "git status 12>/dev/null", "! git status",
    "{ git status; }", "(git status)", "if git status; then touch X; fi", "git() { touch X; }", "[[ git ]] && touch X",
    "git status |\\\n| touch X", "git status\x0btouch X", "git status\u2028touch X", "git status\xa0;touch X", "time git status",
    "git status > /dev/null touch X", "git status </dev/null&touch X", "git status >|/dev/null", "git status >&- touch X",
]  # fmt: skip
TOKENS = [
    "git", "status", "touch", "X", " ", " ", "\t", "\n", "\\\n", "\\", "'", '"', "&", "&&", ";", "|", "||", "|&", "&>",
    "/dev/null", ">", "<", ">&", "<&", ">|", "<>", "<<", "<<<", "1", "2", "-", "{", "}", "(", ")", "$", "`", "#", "!",
    "=", "a=b", "a[0]=", "if", "then", "fi", "time", "[[", "]]", "~", "*", ",", "{git,touch}", "\r", "\xa0",
]  # fmt: skip


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Run a command line by a shell in an empty directory: the programs that it started, each with its words."""
    folder = tmp_path_factory.mktemp("stubs")
    programs, log, empty = folder / "bin", folder / "log", folder / "empty"
    programs.mkdir()
    for name in STUBS:
        (programs / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "${{0##*/}}" >> {log}\n')
        (programs / name).chmod(0o700)

    def run(program, command):
        empty.mkdir()
        log.write_text("")
        environment = {"PATH": str(programs)}
        subprocess.run(
            [shutil.which(program), "-c", command],
            cwd=empty,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        made = [path.name for path in empty.iterdir()]
        shutil.rmtree(empty)
        return log.read_text().split(), made

    return run


def check_that_one_program_starts(command, started):
    policy = Policy([("bash", "ask"), ("bash(git *)", "allow")])
    if policy.decide(shell(), {"command": command})[0] == "allow":
        for program in ("sh", "bash"):
            assert started(program, command) in ((["git"], []), ([], []))


@pytest.mark.parametrize("command", TRAPS)
def test_a_rule_that_allows_a_command_allows_one_program(command, started):
    check_that_one_program_starts(command, started)


@given(st.lists(st.sampled_from(TOKENS), max_size=8))
def test_whatever_a_rule_allows_starts_one_program(started, tokens):
    check_that_one_program_starts(f"git status{''.join(tokens)}", started)
