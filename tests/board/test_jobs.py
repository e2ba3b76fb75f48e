"""Jobs on the board, as a person sees them: watched, approved, answered, cancelled, forked."""

import re

import pytest
from playwright.sync_api import expect

from callboard.jobs.job import Approval

pytestmark = pytest.mark.usefixtures("worker")


def open_job(visitor, identifier):
    page = visitor.open(f"jobs/{identifier}")
    page.mouse.move(1, 1)  # a question that comes is inert until it is known where the pointer is
    return page


def look_at_next(page):
    """Follow the link to the question that comes after an answer."""
    page.get_by_role("link", name="Look at the next").click()


def cancel(page):
    page.get_by_text("Cancel job…").click()
    page.get_by_role("button", name="Cancel this job").click()


def state_of(page):
    return page.locator("#state .state")


def test_a_job_is_watched_approved_answered_and_forked(board, jobs, visit, look):
    visitor = visit(board)
    page = open_job(visitor, jobs.submit("Ship it"))
    expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()
    assert page.locator(".diff .added").first.inner_text().strip() == "+    return a + b"
    expect(page.locator("#log")).to_contain_text("I mend it.")
    expect(page.locator("#waits pre")).to_have_text("prod")
    look(page)
    page.get_by_role("button", name="Allow", exact=True).click()
    look_at_next(page)
    expect(page.get_by_role("heading", name="A question for you")).to_be_visible()
    expect(page.locator("#log")).to_contain_text("it is on prod now")
    look(page)
    page.get_by_label("Your answer").fill("Nightingale")
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(state_of(page)).to_have_text("completed")
    expect(page.locator("#log")).to_contain_text("Nightingale")
    expect(page.locator("#outcome")).to_contain_text("It is shipped.")
    numbers = page.locator("#log article .mark").all_text_contents()
    assert numbers == [str(each) for each in range(1, len(numbers) + 1)]
    look(page)
    before = page.url
    page.get_by_role("button", name="Fork after round 1").click()
    expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()
    assert page.url != before
    expect(page.locator("#facts")).to_contain_text("after round 1")


def test_a_call_is_denied_by_the_enter_key_behind_its_reason(board, jobs, visit):
    page = open_job(visit(board), jobs.submit("Ship it"))
    expect(page.get_by_role("button", name="Deny")).to_be_enabled()
    page.get_by_label("Reason (shown to the model)").fill("not today")
    page.keyboard.press("Enter")
    expect(page.locator("#log")).to_contain_text("not today")
    expect(page.locator("#log")).not_to_contain_text("it is on prod now")


def test_a_running_job_is_cancelled_resumed_and_retried(board, jobs, visit):
    page = open_job(visit(board), jobs.submit("Sleep"))
    expect(page.locator("#log")).to_contain_text("I wait.")
    expect(state_of(page)).to_have_text("running")
    cancel(page)
    expect(state_of(page)).to_have_text("cancelled")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#log")).to_contain_text("I woke up.")
    expect(state_of(page)).to_have_text("completed")
    first = page.url
    page.get_by_role("button", name="Retry as a new job").click()
    expect(state_of(page)).to_have_text("running")
    assert page.url != first
    cancel(page)
    expect(state_of(page)).to_have_text("cancelled")


def test_a_job_runs_again_with_another_prompt_and_another_model(board, jobs, visit, look):
    visitor = visit(board)
    page = open_job(visitor, jobs.submit("Ship it"))
    expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()
    first = page.url
    page.get_by_role("button", name="Run again after round 1").click()
    expect(page.get_by_label("Prompt")).to_have_value("Ship it")
    look(page)
    page.get_by_label("Prompt").fill("Ship it all")
    page.get_by_role("button", name="Run again with this").click()
    expect(page.get_by_role("heading", name="Ship it all", level=1)).to_be_visible()
    expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("after round 1")
    cancel(page)
    expect(state_of(page)).to_have_text("cancelled")
    page.get_by_role("button", name="Run again with changes").click()
    page.get_by_label("Model").fill("ollama:another")
    page.get_by_role("button", name="Run again with this").click()
    expect(page.locator("#facts")).to_contain_text("ollama:another")
    assert page.url != first
    expect(state_of(page)).to_have_text("waiting")  # for that model's server


def test_two_tabs_see_the_same_and_the_late_answer_is_refused(board, jobs, visit):
    visitor = visit(board)
    identifier = jobs.submit("Ship it")
    one, two = open_job(visitor, identifier), open_job(visitor, identifier)
    for page in (one, two):
        expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()
    # The second tab does not hear of it any more, and still shows the call.
    two.evaluate("window.dispatchEvent(new Event('pagehide'))")
    one.get_by_role("button", name="Allow", exact=True).click()
    expect(one.get_by_role("heading", name="You allowed this call")).to_be_visible()
    two.get_by_role("button", name="Deny").click()
    expect(two.get_by_role("alert")).to_contain_text("answered already")


def test_the_list_is_live_and_what_waits_is_on_top(board, jobs, visit, look):
    page = visit(board).open("jobs")
    jobs.submit("Ship it to the list")
    link = page.locator("#waiting").get_by_role("link", name="Ship it to the list")
    expect(link).to_be_visible()
    look(page)
    link.click()
    expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()


def test_a_list_that_changes_keeps_the_focus(board, jobs, visit):
    claim = jobs.begin("Keep the focus")
    page = visit(board).open("jobs")
    link = page.locator("#rows").get_by_role("link", name="Keep the focus")
    link.focus()
    jobs.run(claim.append([], rounds=7))
    row = page.locator("#rows tr").filter(has_text="Keep the focus")
    expect(row.locator("[data-label=Round]")).to_have_text("7")
    expect(link).to_be_focused()


def test_it_can_be_done_by_the_keyboard_alone(board, jobs, visit):
    page = open_job(visit(board), jobs.submit("Ship it"))
    expect(page.get_by_role("heading", name="Allow deploy?")).to_be_visible()
    button = page.get_by_role("button", name="Allow", exact=True)
    expect(button).to_be_enabled()
    for _ in range(30):
        page.keyboard.press("Tab")
        if button.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Look at the next").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="A question for you")).to_be_visible()


def test_keys_lead_through_the_list_and_the_tab_counts_what_waits(board, jobs, visit, look):
    claim = jobs.begin("Find me by the keyboard")
    page = visit(board).open("jobs")
    expect(page.locator("#rows tr").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    look(page)
    page.keyboard.press("?")
    page.keyboard.press("/")
    page.keyboard.type("by the key?")
    expect(page.get_by_label("Search")).to_have_value("by the key?")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=by+the+key&**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{claim.job.id}")
    assert not page.title().startswith("(")
    jobs.run(claim.wait([Approval(call_id="c", name="deploy", arguments={}, digest="d")]))
    expect(page).to_have_title(re.compile(r"^\(1\) Find me"))
    jobs.run(jobs.client.store.request_cancel(claim.job.id))
    expect(page).to_have_title(re.compile("^Find me"))


def test_ages_do_not_depend_on_the_browser_s_clock_and_times_are_local_on_hover(board, jobs, visit):
    visitor = visit(board, timezone_id="Asia/Tokyo", locale="en-GB")
    visitor.context.add_init_script("{ const now = Date.now; Date.now = () => now() + 3600000; }")
    jobs.begin("Tell the time")
    page = visitor.open("jobs?text=Tell+the+time")
    age = page.locator("#rows td[data-label=Age] time")
    expect(age).to_have_text(re.compile(r"^([1-9]\d? s|\d min)$"))
    age.hover()
    expect(age).to_have_attribute("title", re.compile(r"GMT\+9"))
