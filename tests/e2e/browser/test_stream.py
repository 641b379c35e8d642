"""One stream: what it says of itself, its frames by their format, what is missing, and whose it was."""

from contextlib import suppress

from playwright.sync_api import expect

from tests.e2e.browser.harness import Cast, Tab
from tests.e2e.browser.scenes import POSITION, Scene


def test_the_ribbon_shows_a_transfer_from_before_and_one_that_is_seen(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    scene.play()
    cast.do(scene.hand_over())
    page = tab.observe("streams/cat").page
    owners = page.locator(".ribbon-row.strong .span")
    expect(owners).to_have_text(["alice", "carol"])
    cast.do(scene.writer.transfer("bob"))
    expect(owners).to_have_text(["alice", "carol", "bob"])
    expect(page.locator(".ribbon-name")).to_have_text(["owner", "alice", "carol", "bob"])
    expect(page.get_by_role("img", name="Owned by alice, then carol, then bob")).to_be_visible()
    page.locator(".changes summary").click()
    expect(page.locator(".change-list li").first).to_contain_text("ownership transferred · bob")


def test_frames_are_read_by_their_format(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    scene.play()
    page = tab.observe("streams/cat").page
    cast.do(scene.cat.send({"x": 12345678901234567890, "y": 1.0}))
    detail = page.get_by_role("region", name="The frame")
    expect(detail).to_contain_text("JSON application/json")
    expect(detail).to_contain_text("12345678901234567890")
    expect(detail).to_contain_text("1.0")
    tab.go("streams/stream-1")
    cast.do(scene.talk.send("just words"))
    expect(page.get_by_label("Text of the frame")).to_have_text("just words")
    tab.go("streams/stream-2")
    cast.do(scene.camera.send(b"\xff\xd8\x00A"))
    expect(page.get_by_label("Bytes of the frame")).to_contain_text("ff d8 00 41")
    expect(page.get_by_label("Bytes of the frame")).to_contain_text("···A")


def test_numbers_in_envelopes_of_a_stream_are_as_they_were_written(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    cast.do(cast.do(alice.announce_stream([POSITION], desired_id="cat")).start())
    page = tab.observe("streams/cat").page
    content = {"x": 9007199254740993, "y": 1.0, "mood": 'a "brace" }'}
    cast.do(alice.send("stream/data", {"stream": {"stream_id": "cat"}, "sequence": 1, "content": content}))
    detail = page.get_by_role("region", name="The frame")
    expect(detail).to_contain_text("x: 9007199254740993")
    expect(detail).to_contain_text("y: 1.0")
    expect(detail).to_contain_text("brace")


def test_formats_are_listed_field_by_field(tab: Tab, cast: Cast) -> None:
    Scene(cast).play()
    page = tab.observe("streams/cat").page
    fields = page.locator(".schema-field")
    expect(fields).to_have_count(5)
    expect(fields.first).to_contain_text("number")
    expect(fields.first).to_contain_text("≥ -50, ≤ 50")
    expect(fields.nth(3)).to_contain_text('"calm" | "curious" | "hungry"')
    expect(fields.nth(4)).to_contain_text("list of string")


def test_numbers_in_frames_are_drawn_and_can_be_left_out(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    scene.play()
    page = tab.observe("streams/cat").page
    for step in range(5):
        cast.do(scene.cat.send({"x": step, "y": -step}))
    plot = page.get_by_role("figure", name="Numbers in the frames")
    expect(plot.locator("canvas")).to_have_count(1)
    expect(plot.locator(".plot-legend")).to_have_text("xy")
    page.get_by_role("button", name="y", exact=True).click()
    expect(plot.locator(".plot-legend")).to_have_text("")


def test_what_a_writer_left_out_is_shown_as_a_gap(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    stream = cast.do(alice.announce_stream([POSITION], desired_id="cat"))
    cast.do(stream.start())
    page = tab.observe("streams/cat").page
    expect(page.get_by_role("region", name="Gaps").first).to_contain_text("none seen")
    for sequence in (1, 2, 7, 8):
        payload = {"stream": {"stream_id": "cat"}, "sequence": sequence, "content": {"x": 1, "y": 2}}
        cast.do(alice.send("stream/data", payload))
    gap = page.get_by_role("row", name="sequence 3 to 6")
    expect(gap).to_contain_text("4")
    expect(gap).to_contain_text("skipped by alice")
    expect(page.locator(".figure.bad")).to_have_text("missing4")


def test_what_this_page_was_not_sent_is_shown_as_a_gap(tab: Tab, cast: Cast) -> None:
    alice = cast.join("alice")
    stream = cast.do(alice.open_stream(description="loud"))
    page = tab.act("dana", f"streams/{stream.stream_id}").page  # an observer is not told
    expect(page.get_by_text("No frames yet")).to_be_visible()
    frozen = "ms => { setTimeout(() => { const end = Date.now() + ms; while (Date.now() < end); }); }"
    loud = b"\x00" * 50_000

    async def shout() -> None:
        for _ in range(100):
            await stream.send(loud)

    gap = page.locator("tr.gap").first
    for _ in range(3):
        page.evaluate(frozen, 3000)  # none is read meanwhile, if all are sent in that time
        cast.do(shout())
        with suppress(AssertionError):
            expect(gap).to_be_visible(timeout=6000)
            break
    expect(gap).to_contain_text("this page was too slow to receive them")
    expect(page.locator(".figure.bad")).to_contain_text("missing")


def test_a_stream_that_ends_says_so_and_why(tab: Tab, cast: Cast) -> None:
    scene = Scene(cast)
    scene.play()
    page = tab.observe("streams/cat").page
    cast.do(scene.cat.close("the cat sleeps"))
    expect(page.locator(".view-head")).to_contain_text("ended")
    expect(page.locator(".view-head")).to_contain_text("the cat sleeps")
