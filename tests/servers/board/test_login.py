"""Links, sessions and the tokens of forms."""

import multiprocessing
import os
import stat
from urllib.parse import quote

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.servers.board.login import LINK_SECONDS, SESSION_SECONDS, Login


def test_a_link_logs_in_once(login):
    token = login.make_link_token()
    assert [login.use_link_token(token), login.use_link_token(token)] == ["ok", "used"]


def test_a_link_that_was_used_in_one_process_is_used_in_all(login, tmp_path, clock):
    token = login.make_link_token()
    assert Login(tmp_path / "board", clock).use_link_token(token) == "ok"
    assert login.use_link_token(token) == "used"


def test_a_link_ends(login, clock):
    token = login.make_link_token()
    clock.now += LINK_SECONDS + 1
    assert login.use_link_token(token) == "expired"


@pytest.mark.parametrize("token", ["", ".", "a.b.c", "../../etc/passwd", "é\0", "x" * 10_000])
def test_what_is_no_link_logs_nobody_in(login, token):
    assert login.use_link_token(token) == "wrong"


def test_a_session_is_no_link_and_a_link_no_session(login):
    assert login.use_link_token(login.begin_session()) == "wrong"
    assert login.find_session(login.make_link_token()) == ""


def test_a_session_expires(login, clock):
    cookie = login.begin_session()
    assert login.find_session(cookie)
    clock.now += SESSION_SECONDS + 1
    assert login.find_session(cookie) == ""


def test_a_session_that_its_user_ended_is_ended_in_all_processes(login, tmp_path, clock):
    cookie, other = login.begin_session(), login.begin_session()
    login.end_session(login.find_session(cookie))
    assert login.find_session(cookie) == Login(tmp_path / "board", clock).find_session(cookie) == ""
    assert login.find_session(other)


def test_an_empty_secret_signs_nothing(tmp_path):
    (tmp_path / "secret").touch()
    with pytest.raises(CallerError, match="too short"):
        Login(tmp_path)


def test_a_secret_that_others_own_or_may_write_signs_nothing(tmp_path, monkeypatch):
    Login(tmp_path)
    secret = tmp_path / "secret"
    secret.chmod(0o606)
    with pytest.raises(CallerError, match="everybody may write to"):
        Login(tmp_path)
    secret.chmod(0o600)
    Login(tmp_path)
    if os.getuid():
        monkeypatch.setattr(os, "getuid", lambda: 4242)
    else:
        os.chown(secret, 4242, 4242)
    with pytest.raises(CallerError, match="secret belongs to another user"):
        Login(tmp_path)


def test_a_form_is_of_one_session(login):
    first, second = (login.find_session(login.begin_session()) for _ in range(2))
    token = login.form_token(first)
    assert login.is_form_token(first, token)
    assert not login.is_form_token(second, token)
    assert not login.is_form_token("", login.form_token(""))


def test_a_signature_by_another_secret_is_worth_nothing(login, tmp_path, clock):
    other = Login(tmp_path / "other", clock)
    assert login.use_link_token(other.make_link_token()) == "wrong"
    assert login.find_session(other.begin_session()) == ""
    assert login.cookie != other.cookie


@pytest.mark.usefixtures("login")
def test_the_secret_is_its_owners_alone(tmp_path):
    path = tmp_path / "board" / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def make_and_report(directory, barrier, results):
    barrier.wait()
    results.put(Login(directory).cookie)


def test_processes_that_begin_at_once_have_one_secret(tmp_path):
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    barrier, results = context.Barrier(4), context.Queue()
    arguments = (tmp_path / "new", barrier, results)
    processes = [context.Process(target=make_and_report, args=arguments) for _ in range(4)]
    for each in processes:
        each.start()
    names = {results.get(timeout=120) for _ in processes}
    for each in processes:
        each.join()
    assert len(names) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["secret"]


def test_notes_of_old_links_are_deleted(login, tmp_path):
    login.use_link_token(login.make_link_token())
    (old,) = (tmp_path / "board" / "used").iterdir()
    os.utime(old, (0, 0))
    login.use_link_token(login.make_link_token())
    assert old not in [*(tmp_path / "board" / "used").iterdir()]


@table(
    "page", ["/jobs/20261128-1-ab", "/jobs?state=failed&text=a+b%20c", "//evil.example", "/\\evil.example", "/login"]
)
def test_a_login_leads_to_the_page_that_was_asked_for(page, visitor, login):
    visitor.cookies.clear()
    asked = visitor.get(f"/board{page}", headers={"accept": "text/html"}, follow_redirects=False)
    remembered = asked.cookies.get("callboard-board-page", "")
    if "evil" in page or page == "/login":
        assert remembered == ""
        visitor.cookies.set("callboard-board-page", quote(page, safe=""), path="/board")
    answer = visitor.post("/board/login", data={"link": login.make_link_token()}, follow_redirects=False)
    assert answer.headers["location"] == ("/board/" if "evil" in page else f"/board{page}")
    assert 'callboard-board-page=""' in answer.headers["set-cookie"]
