"""Who gets in, what every answer carries, and what is refused."""

import re

import pytest

from callboard.errors import PAGE
from callboard.jobs import DatabaseUnavailable
from callboard.servers.board.browser import MAX_FORM
from callboard.servers.board.login import POLICY


def log_in(visitor, login):
    return visitor.post("/board/login", data={"link": login.make_link_token()}, follow_redirects=False)


def test_a_link_leads_to_the_jobs(visitor, login):
    link = f"/board/login?token={login.make_link_token()}"
    page = visitor.get(link)
    assert page.status_code == 200
    assert "data-send" in page.text
    answer = log_in(visitor, login)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/board" in cookie
    assert "secure" not in cookie
    assert visitor.get("/board/").url.path == "/board/jobs"


def test_to_show_a_link_does_not_use_it_up(visitor, login):
    token = login.make_link_token()
    for _ in range(2):
        visitor.get(f"/board/login?token={token}")
    assert login.use_link_token(token) == "ok"


def test_behind_tls_the_cookie_is_for_tls_alone(visitor, login):
    headers = {"origin": "https://127.0.0.1:8283"}
    data = {"link": login.make_link_token()}
    answer = visitor.post("/board/login", data=data, headers=headers, follow_redirects=False)
    assert "secure" in answer.headers["set-cookie"].lower()


def test_a_used_link_says_what_to_do(visitor, login):
    token = login.make_link_token()
    login.use_link_token(token)
    answer = visitor.post("/board/login", data={"link": token})
    assert answer.status_code == 403
    assert "This link was already used" in answer.text
    assert "callboard board --link" in answer.text


def test_without_a_session_there_is_only_the_login(visitor):
    assert visitor.get("/board/jobs").url.path == "/board/login"
    refused = visitor.get("/board/jobs", headers={"accept": "*/*"})
    assert (refused.status_code, "callboard board --link --port " in refused.text) == (401, True)
    assert visitor.post("/board/logout").status_code == 401
    assert visitor.get("/board/login-not").url.path == "/board/login"


def test_a_link_in_a_chat_to_a_job_is_opened_again_with_the_cookie(visitor):
    """A browser sends no SameSite=Strict cookie with a link on another site."""
    chat = {"sec-fetch-site": "cross-site"}
    answer = visitor.get('/board/jobs/j?from=2"><script>', headers=chat)
    assert answer.text == '<meta http-equiv="refresh" content="0; url=?from=2%22%3E%3Cscript%3E&amp;again">'
    assert visitor.get("/board/jobs/j?again", headers={"sec-fetch-site": "same-origin"}).url.path == "/board/login"
    assert visitor.get("/board/jobs/j?&again", headers={"sec-fetch-site": "cross-site"}).url.path == "/board/login"
    assert visitor.get("/board/jobs", headers=chat).url.path == "/board/login"


@pytest.mark.parametrize(("method", "path"), [("GET", "/static/x"), ("GET", "/static/a/b/c"), ("PUT", "/login")])
def test_the_database_is_opened_for_nobody_who_is_not_logged_in(board, visitor, method, path):
    assert visitor.request(method, f"/board{path}").status_code == 404
    board.parts.jobs.assert_not_called()


def test_one_logs_out(browser, token):
    answer = browser.post("/board/logout", data={"token": token}, follow_redirects=False)
    assert answer.status_code == 303
    assert "max-age=0" in answer.headers["set-cookie"].lower()


def test_a_copy_of_a_cookie_is_worth_nothing_after_the_logout(browser, token, login):
    cookie = browser.cookies[login.cookie]
    browser.post("/board/logout", data={"token": token})
    browser.cookies.set(login.cookie, cookie, path="/board")
    assert browser.get("/board/jobs").url.path == "/board/login"


def test_a_stream_ends_with_its_session(login, follow, browser, monkeypatch):
    monkeypatch.setattr("callboard.servers.board.browser.BEAT_SECONDS", 0.01)

    async def log_out():
        login.end_session(login.find_session(browser.cookies[login.cookie]))

    messages = follow("/board/jobs/live", lambda messages: False, log_out)
    assert [event for event, _, _ in messages] == ["parts"]


@pytest.mark.parametrize("data", [{}, {"token": ""}, {"token": "x"}])
def test_a_form_without_the_sessions_token_is_refused(browser, data):
    answer = browser.post("/board/logout", data=data, follow_redirects=False)
    assert answer.status_code == 403
    assert "reload the page" in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:3000", "null", "", "http://["])
def test_a_form_of_another_page_is_refused(browser, token, origin):
    answer = browser.post("/board/logout", data={"token": token}, headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8283", "", "[::2]", "127.0.0.1:1@evil", "127.0.0.1@evil", "[::1]x"]
)
def test_a_name_that_is_not_the_boards_is_refused(browser, host):
    answer = browser.get("/board/jobs", headers={"host": host})
    assert answer.status_code == 403
    assert "--url" in answer.text


@pytest.mark.parametrize("path", ["/board/jobs", "/board/nothing", "/board/login"])
def test_every_answer_is_guarded(browser, path):
    answer = browser.get(path)
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe-inline" not in POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_hold_no_scripts_and_styles_of_their_own(browser):
    page = browser.get("/board/jobs").text
    assert page.count("<script") == 1
    assert "<style" not in page
    assert "style=" not in page
    assert not re.search(r"<[^>]* on\w+=", page)


def test_files_are_kept_by_browsers(visitor):
    page = visitor.get("/board/login").text
    path = page.partition('<link rel="stylesheet" href="')[2].partition('"')[0]
    answer = visitor.get(path)
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert visitor.get("/board/static/000000000000/board.css").status_code == 404


def test_a_large_form_is_refused(browser):
    assert browser.post("/board/logout", content=b"x" * (MAX_FORM + 1)).status_code == 413


def test_the_board_is_found_from_the_root(browser):
    assert browser.get("/").url.path == "/board/jobs"
    assert browser.get("/board").url.path == "/board/jobs"


def test_what_is_not_there_is_a_page(browser):
    answer = browser.get("/board/nothing")
    assert answer.status_code == 404
    assert "page not found" in answer.text


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://127.0.0.1:8283/board/jobs?text=pay&page=2", '<a href="/board/jobs?text=pay&amp;page=2">'),
        ("http://127.0.0.1:8283/board/nothing", ""),
        ("http://evil.example/board/jobs", ""),
        ("http://127.0.0.1:8283//evil.example/board/jobs", ""),
        ("http://[", ""),
        ("", ""),
    ],
)
def test_an_error_leads_back_to_the_page_before(browser, referer, back):
    page = browser.get("/board/nothing", headers={"referer": referer}).text
    assert ("Back to the page before" in page) == bool(back)
    assert back in page


def test_a_gateways_board_opens_its_jobs_when_somebody_looks(board, browser):
    board.parts.jobs.assert_not_called()
    browser.get("/board/login", follow_redirects=False)
    board.parts.jobs.assert_not_called()
    for _ in range(2):
        browser.get("/board/jobs")
    board.parts.jobs.assert_called_once()


def test_an_error_without_a_hint_links_its_row(board, browser):
    board.parts.jobs.side_effect = DatabaseUnavailable("it is damaged", path="jobs.db")
    page = browser.get("/board/jobs")
    assert (page.status_code, "it is damaged" in page.text) == (503, True)
    assert f'href="{PAGE}#databaseunavailable"' in page.text
