"""A question and the pointer: no question replaces another one, and no click answers a question that was not read."""

import pytest
from playwright.sync_api import expect

from callboard.jobs.job import Approval
from callboard.jobs.notification_formats import make_message

NOTIFICATION = {"state": "waiting", "waits_for": "approval", "asks": [], "title": "Pay", "reason": "", "error": ""}
DELAYS = [250, 250, 400, 500]
"""Milliseconds between clicks: 250, 500, 900 and 1,400 after the first."""


def payment(number):
    arguments = {"cents": number, "iban": "XX9"}
    return Approval(call_id=f"call_{number}", name="pay", arguments=arguments, why="pay asks", digest=f"d{number}")


def read(jobs, identifier):
    return {each.call_id: each.verdict for each in jobs.run(jobs.client.store.read_approvals(identifier))}


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.fixture
def page(board, jobs, visit):
    claim = jobs.begin("Pay")
    jobs.run(claim.wait([payment(1)]))
    page = visit(board, viewport={"width": 1200, "height": 1200}).open()  # both questions are in it
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    page.goto(f"{board.url}jobs/{claim.job.id}")
    page.job = claim.job.id
    return page


def runs(page):
    return page.get_by_role("button", name="Allow", exact=True)


def let_another_ask(jobs, page):
    """Somebody else allows the first payment, and the model asks for the next."""
    store = jobs.client.store
    jobs.run(store.answer(page.job, "call_1", digest="d1", by="somebody", via="terminal"))
    claim = jobs.run(store.claim(page.job, 2, "the test"))
    jobs.run(claim.wait([payment(9_990_000)]))
    expect(page.get_by_role("heading", name="Somebody else allowed this call")).to_be_visible()
    expect(runs(page)).to_have_count(1)


def test_a_new_question_comes_below_the_old_one_and_no_click_on_its_place_answers(jobs, page):
    expect(runs(page)).to_be_disabled()
    page.clock.run_for(1500)
    expect(runs(page)).to_be_enabled()
    old = page.locator("#waits section").first
    place, at = old.bounding_box(), centre(runs(page))
    page.mouse.move(*at)
    let_another_ask(jobs, page)
    assert old.bounding_box() == place
    assert page.locator("#waits section").nth(1).bounding_box()["y"] >= place["y"] + place["height"]
    page.mouse.click(*at)
    for delay in DELAYS:
        page.clock.run_for(delay)
        expect(runs(page)).to_be_disabled()
        page.mouse.click(*at)
        page.mouse.click(*centre(runs(page)))
    page.mouse.move(*at)
    assert read(jobs, page.job) == {"call_1": "allow", "call_9990000": ""}
    page.clock.run_for(100)
    expect(runs(page)).to_be_enabled()


def test_a_question_under_the_pointer_waits_until_the_pointer_has_left(jobs, page):
    page.clock.run_for(1500)
    place = page.locator("#waits section").bounding_box()
    below = (place["x"] + 60, place["y"] + place["height"] + 60)
    page.mouse.move(*below)
    let_another_ask(jobs, page)
    page.clock.run_for(60_000)
    expect(runs(page)).to_be_disabled()
    page.mouse.move(below[0] + 5, below[1] + 5)
    page.mouse.click(*centre(runs(page)))
    expect(runs(page)).to_be_disabled()
    page.mouse.move(1, 1)
    expect(runs(page)).to_be_enabled()
    assert read(jobs, page.job)["call_9990000"] == ""


def test_a_pointer_that_nobody_has_moved_keeps_a_question_inert_as_well(board, jobs, visit):
    visitor = visit(board)
    claim = jobs.begin("Pay")
    jobs.run(claim.wait([payment(1)]))
    page = visitor.open(f"jobs/{claim.job.id}")
    page.job = claim.job.id
    place = page.locator("#waits section").bounding_box()
    page.mouse.move(place["x"] + 60, place["y"] + place["height"] + 60)
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    page.reload()
    let_another_ask(jobs, page)
    page.clock.run_for(60_000)
    expect(runs(page)).to_be_disabled()
    page.keyboard.press("Tab")
    expect(runs(page)).to_be_enabled()


def test_a_question_that_is_withdrawn_stays_and_answers_nothing(jobs, page):
    page.clock.run_for(1500)
    expect(runs(page)).to_be_enabled()
    jobs.run(jobs.client.store.request_cancel(page.job))
    expect(page.get_by_role("heading", name="This question is closed")).to_be_visible()
    expect(runs(page)).to_be_disabled()


@pytest.mark.usefixtures("worker")
def test_further_clicks_on_the_place_of_the_button_pay_nothing(board, jobs, visit, look):
    identifier = jobs.submit("Pay both")
    visitor = visit(board)
    page = visitor.open(f"jobs/{identifier}")
    page.mouse.move(1, 1)
    expect(runs(page)).to_be_enabled()
    at = centre(runs(page))
    page.mouse.click(*at)
    page.mouse.click(*at)
    expect(runs(page)).to_have_count(0)
    page.goto(f"{board.url}jobs/{identifier}?answered=1")
    expect(page.get_by_role("link", name="Look at the next call")).to_be_visible()
    expect(page.locator("#log")).to_contain_text("Allowed by session")
    assert page.evaluate("([x, y]) => document.elementFromPoint(x, y).closest('button')", at) is None
    look(page)
    after = visitor.open()
    after.clock.install()
    after.clock.pause_at("2030-01-01")
    after.goto(f"{board.url}jobs/{identifier}")
    for delay in DELAYS:
        after.clock.run_for(delay)
        after.mouse.click(*at)
        after.mouse.click(*centre(runs(after)))
        expect(runs(after)).to_be_disabled()
    assert [*read(jobs, identifier).values()] == ["allow", ""]


@pytest.mark.usefixtures("worker")
def test_edited_arguments_are_checked_at_their_field(board, jobs, visit, look):
    identifier = jobs.submit("Pay both")
    page = visit(board).open(f"jobs/{identifier}")
    page.get_by_text("Edit arguments").click()
    page.get_by_label("cents").fill("a lot")
    page.get_by_label("iban").fill("DE2")
    page.mouse.move(1, 1)
    page.get_by_role("button", name="Allow with these arguments").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was run")
    expect(page.get_by_label("cents")).to_have_accessible_description(
        "This is not valid JSON. Text inside JSON needs double quotes."
    )
    expect(page.get_by_label("iban")).to_have_value("DE2")
    assert [*read(jobs, identifier).values()] == [""]
    look(page)
    page.get_by_label("cents").fill("50")
    page.mouse.move(1, 1)
    page.get_by_role("button", name="Allow with these arguments").click()
    expect(page.locator("#log")).to_contain_text("50 cents went to DE2")


def test_without_scripts_no_click_after_an_answer_meets_a_question(board, jobs, visit, chromium):
    state = visit(board).context.storage_state()
    claim = jobs.begin("Pay")
    jobs.run(claim.wait([payment(1), payment(2)]))
    context = chromium.new_context(java_script_enabled=False, storage_state=state)
    page = context.new_page()
    page.goto(f"{board.url}jobs/{claim.job.id}")
    at = centre(runs(page).first)
    page.mouse.click(*at)  # it counts only if the page took long enough to get here
    expect(runs(page)).to_have_count(0)
    page.mouse.click(*at)
    assert read(jobs, claim.job.id)["call_2"] == ""
    page.goto(f"{board.url}jobs/{claim.job.id}?answered=1")
    expect(runs(page)).to_have_count(0)
    page.get_by_role("link", name="Look at the next call").first.click()
    expect(runs(page)).not_to_have_count(0)
    context.close()


def test_the_link_of_a_notification_in_a_chat_opens_the_approval(board, jobs, visit):
    claim = jobs.begin("Pay")
    jobs.run(claim.wait([payment(1)]))
    link = make_message("ntfy", {**NOTIFICATION, "job": claim.job.id}, board.url.removesuffix("/board/")).headers[
        "click"
    ]
    page = visit(board).open()
    chat = f'<a href="{link}">Open it on the board</a>'
    page.route("https://chat.example/", lambda route: route.fulfill(body=chat, content_type="text/html"))
    page.goto("https://chat.example/")
    page.get_by_role("link").click()
    expect(runs(page)).to_have_count(1)
