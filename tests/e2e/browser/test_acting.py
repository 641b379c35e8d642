"""What may be done from the page: what the gateway allows, and nothing else."""

import pytest
from playwright.sync_api import expect

from mew.client.errors import MewError
from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import Scene
from tests.gateway.raw import Running


def test_a_grant_from_the_page_lets_a_second_client_write(tab: Tab, cast: Cast) -> None:
    carol = cast.join("carol")
    alice = cast.join("alice")
    stream = cast.do(alice.open_stream(description="the cat"))
    theirs = carol.stream(stream.stream_id)
    with pytest.raises(MewError):
        cast.do(theirs.send(b"too early"))
    page = tab.act("alice", f"streams/{stream.stream_id}").page
    granted = carol.envelopes("stream/write-granted")
    page.get_by_role("combobox", name="Grant write access to", exact=True).select_option("carol")
    page.get_by_role("button", name="Grant").click()
    expect(page.locator(".facts .names").first).to_contain_text("carol")
    cast.do(anext(granted))  # her client knows it too
    cast.do(theirs.send(b"now I may"))
    expect(page.get_by_label("Text of the frame")).to_have_text("now I may")
    page.get_by_label("Revoke write access of").select_option("carol")
    page.get_by_role("button", name="Revoke").click()
    expect(page.locator(".facts .names").first).not_to_contain_text("carol")


def test_the_owner_hands_a_stream_over_and_may_do_no_more_with_it(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.join("carol")
    stream = cast.do(alice.open_stream(description="the cat"))
    page = tab.act("alice", f"streams/{stream.stream_id}").page
    page.get_by_label("Transfer ownership to").select_option("carol")
    page.get_by_role("button", name="Transfer").click()
    expect(page.locator(".ribbon-row.strong .span")).to_have_text(["alice", "carol"])
    expect(page.get_by_role("button", name="Transfer")).to_have_count(0)
    # Alice may send anything: she can still end it.
    page.get_by_role("button", name="Close the stream…").click()
    page.get_by_role("dialog").get_by_role("button", name="Close the stream").click()
    expect(page.locator(".view-head")).to_contain_text("ended")


def test_an_observer_is_offered_nothing(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.observe().page
    page.get_by_role("button", name="bob present").click()
    expect(page.get_by_text("Explain what bob may do")).to_be_visible()
    for name in ("Pause", "Grant…", "Remove…", "Invite…", "Send"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    tab.go("streams/cat")
    expect(page.get_by_role("heading", name="Ownership")).to_be_visible()
    expect(page.get_by_role("heading", name="Actions")).to_have_count(0)
    tab.go("approvals")
    expect(page.get_by_text("An observer only reads")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_what_is_not_allowed_is_not_offered(tab: Tab, cast: Cast) -> None:
    cast.join("alice")
    page = tab.act("bob").page
    expect(page.get_by_role("button", name="Send")).to_be_visible()  # Bob may chat
    page.get_by_role("button", name="alice present").click()
    expect(page.get_by_text("Explain what alice may do")).to_be_visible()
    for name in ("Pause", "Grant…", "Remove…", "Invite…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_chat_pause_resume_grant_and_remove(tab: Tab, cast: Cast) -> None:
    bob = cast.join("bob")
    heard = bob.envelopes("chat")
    page = tab.act("alice").page
    page.get_by_label("Chat as alice").fill("hello from the page")
    page.get_by_role("button", name="Send").click()
    assert cast.do(anext(heard)).payload["text"] == "hello from the page"
    page.get_by_role("button", name="bob present").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="bob paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="bob present")).to_be_visible()
    page.get_by_role("button", name="Grant…").click()
    page.get_by_label("Capabilities").fill('[{"kind": "reasoning/*"}]')
    page.get_by_role("dialog").get_by_role("button", name="Grant").click()
    expect(page.get_by_label("What bob may send")).to_contain_text("reasoning/*")
    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("button", name="Remove bob").click()
    expect(page.get_by_role("button", name="bob kicked")).to_be_visible()


def test_the_token_of_an_invitation_is_shown_once(tab: Tab, gateway: Running) -> None:
    page = tab.act("alice").page
    page.get_by_role("button", name="Invite…").click()
    page.get_by_label("Participant id").fill("newcomer")
    page.get_by_role("button", name="Invite", exact=True).click()
    token = page.locator("output.token").inner_text()
    assert token == gateway.token("newcomer")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("output.token")).to_have_count(0)
    assert token not in page.content()
    tab.go("timeline")
    page.get_by_label("Time shown").select_option("0")
    expect(page.locator(".event-row").first).to_be_visible()
    assert token not in page.content()


def test_a_refusal_of_the_gateway_is_shown_verbatim(tab: Tab) -> None:
    page = tab.act("alice").page
    page.get_by_role("button", name="Invite…").click()
    page.get_by_label("Participant id").fill("no such id!")
    page.get_by_role("button", name="Invite", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("contains invalid characters")
    assert all("400" in complaint for complaint in tab.complaints)  # the browser's own word for the answer
    tab.complaints.clear()
