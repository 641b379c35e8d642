"""More was said than the page keeps: it shows the newest without a hole, says from where on, and offers no more."""

from playwright.sync_api import expect

from tests.e2e.browser.breakable_page import LongJournal, excused
from tests.e2e.browser.harness import Tab


def test_of_a_past_that_is_too_long_the_newest_is_shown(tab: Tab) -> None:
    LongJournal(tab.page, last=59_999, every=1)
    page = tab.observe("timeline").page
    foot = page.get_by_text("This page stores 20,000 envelopes and rejections")
    expect(foot).to_contain_text("Shows the journal from position 40,001.")  # and the welcome
    expect(page.get_by_role("button", name="Load earlier")).to_have_count(0)


def test_what_is_loaded_earlier_is_said_as_far_as_it_is_held(tab: Tab) -> None:
    LongJournal(tab.page, last=99_999, every=4)
    page = tab.observe("timeline").page
    expect(page.get_by_text("from position 50,000")).to_be_visible()
    page.get_by_role("button", name="Load earlier").click()
    foot = page.get_by_text("This page stores 20,000 envelopes and rejections")
    expect(foot).to_contain_text("Shows the journal from position 20,004.")
    expect(page.get_by_role("button", name="Load earlier")).to_have_count(0)
    filter_ = page.get_by_label("Filter envelopes")
    for position, row_count in ((20_000, 0), (20_004, 1), (49_996, 1), (50_000, 1)):
        filter_.fill(f"chat-{position}")
        expect(page.locator(".event-row")).to_have_count(row_count)


def test_of_a_reading_that_fails_nothing_is_left_and_it_can_be_tried_again(tab: Tab) -> None:
    journal = LongJournal(tab.page, last=9_999, every=2)
    journal.damaged_from = 5_000
    page = tab.observe("timeline").page
    expect(page.get_by_role("status")).to_contain_text("could not be read from the journal")
    count = page.locator(".view-head")
    expect(count).to_contain_text("1 of 1")
    journal.damaged_from = None
    page.get_by_role("button", name="Load earlier").click()
    expect(count).to_contain_text("5,001 of 5,001")
    expect(page.get_by_role("status")).to_have_count(0)
    excused(tab)
