"""The page in a real browser: what it shows, what it never does, and that hands without a mouse can use it."""

import random
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.report.conftest import Open
from tests.report.made_runs import row, write_rows, write_run
from text2grad.report.folders import read_runs
from text2grad.report.page import build

pytestmark = pytest.mark.system("chromium")


def search(page: Page, words: str) -> None:
    page.get_by_label("Search").fill(words)
    expect(page.locator("#count")).to_contain_text("match")


def test_a_script_in_a_completion_is_shown_and_not_run(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    search(page, "window.hacked")
    expect(page.locator(".card")).to_have_count(1)
    shown = page.locator(".card .completion").inner_text()
    assert "<script>window.hacked = true</script>" in shown and "<img src=x onerror=" in shown
    assert page.locator(".card .said").inner_text() == "“script” has no place <b>here</b>."
    assert page.evaluate("window.hacked") is None
    assert page.locator("#list script, #list img, #list b, #list i").count() == 0


def test_the_policy_of_the_page_forbids_what_it_did_not_bring(browser: Browser, page_file: Path) -> None:
    page = browser.new_page()  # Not through `open_page`: the browser complains on the console, as it should.
    page.goto(page_file.as_uri())
    blocked = page.evaluate(
        """() => new Promise((done) => {
            addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
            const script = document.createElement("script");
            script.type = "text/javascript";
            script.textContent = "window.smuggled = true";
            document.body.append(script);
        })"""
    )
    assert blocked == "script-src-elem"
    assert page.evaluate("window.smuggled") is None
    page.close()


def test_pointing_at_a_token_shows_its_numbers_and_the_critique(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    search(page, "🦩")
    expect(page.locator("#tip")).to_be_hidden()
    page.locator(".card .t", has_text="ships").hover()
    tip = page.locator("#tip")
    expect(tip).to_be_visible()
    for words in ("“ ships”", "reward", "−0.33", "advantage", "log-prob before", "log-prob after", "change"):
        expect(tip).to_contain_text(words)
    expect(tip).to_contain_text("“Nine ships” has no place <b>here</b>.")
    # Both ways: the phrase of the critique lights up with the token, and the tokens with the phrase.
    expect(page.locator(".critique .ph.on")).to_have_text("Nine ships")
    page.locator(".critique .ph").hover()
    assert page.locator(".completion .t.on").all_inner_texts() == ["Nine", " ships"]
    page.locator("h2").nth(1).hover()
    expect(tip).to_be_hidden()
    assert page.locator(".on").count() == 0


def test_the_bytes_of_an_emoji_are_tokens_of_their_own(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    search(page, "🦩")
    tokens = page.locator(".card .t").all_inner_texts()
    assert tokens[:8] == ["Nine", " ships", " 🦩", "·", "·", "🦩", "·", "·"]
    assert tokens[-1] == "end"
    page.locator(".card .t").nth(3).hover()
    expect(page.locator("#tip")).to_contain_text("more bytes of “🦩”")


def test_the_keyboard_reaches_every_token(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    search(page, "🦩")
    page.locator(".prompt summary").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#tip")).to_contain_text("“Nine”")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip")).to_contain_text("“ ships”")
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    page.keyboard.press("End")
    expect(page.locator("#tip")).to_contain_text("where the model decided to stop")
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(page.locator("#tip")).to_contain_text("− poor")
    assert page.evaluate("document.activeElement.textContent") == "Nine ships"


def test_a_tap_shows_it_too_and_a_tap_beside_it_puts_it_away(open_page: Open) -> None:
    page = open_page(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    page.locator(".completion .t.s-poor").first.tap()
    tip = page.locator("#tip")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("is wrong: the report says")
    box = tip.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844
    page.locator(".card header").first.tap()
    expect(tip).to_be_hidden()


def test_a_phone_does_not_scroll_sideways(open_page: Open) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator("#comparison .narrow-only svg").last).to_be_visible()
    expect(page.locator("#comparison .wide-only svg")).to_be_hidden()


def test_the_filter_filters(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    assert page.locator("#count").inner_text() == "51 completions."
    page.select_option("#order", "unscored")
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator(".card")).to_contain_text("Not scored")
    page.select_option("#order", "worst")
    scores = [text.replace("−", "-") for text in page.locator(".card header").all_inner_texts()]
    numbers = [float(text.split("score ")[1].split()[0]) for text in scores]
    assert len(numbers) == 12 and numbers == sorted(numbers) and numbers[0] < 0
    page.select_option("#order", "changes")
    texts = [text.replace("−", "-") for text in page.locator(".card header").all_inner_texts()]
    changes = [abs(float(text.split("change ")[1])) for text in texts]
    assert changes == sorted(changes, reverse=True) and changes[0] > changes[-1]
    page.select_option("#order", "all")
    search(page, "no such words anywhere")
    expect(page.locator("#list")).to_contain_text("Nothing matches")


def test_before_and_after_stand_side_by_side(open_page: Open) -> None:
    page = open_page()
    card = page.locator(".card").first
    left, right = card.locator(".side").all()
    expect(left).to_contain_text("Before training")
    expect(right).to_contain_text("After 24 updates")
    here, there = left.bounding_box(), right.bounding_box()
    assert here and there and here["y"] == there["y"] and here["x"] + here["width"] <= there["x"]
    page.select_option("#order", "changes")
    first = page.locator(".card header").first.inner_text()
    assert "→" in first and "no change" not in first


def test_what_is_missed_or_left_out_is_said(open_page: Open) -> None:
    page = open_page()
    search(page, "seven ships")
    expect(page.locator(".rest").first).to_contain_text("not in the completion")
    expect(page.locator(".critique .ph.missed").first).to_have_text("seven ships")
    search(page, "leaves out")
    page.locator(".rest .ph.omission").first.hover()
    assert page.locator(".completion .t.on").all_inner_texts() == ["end"]
    page.locator(".completion .t.lacks").first.hover()
    expect(page.locator("#tip")).to_contain_text("○ left out")


def test_another_number_colours_the_tokens_otherwise(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    token = page.locator(".card .t", has_text="window").first  # Not rewarded itself, but moved by the update.

    def colour() -> str:
        return str(token.evaluate("element => getComputedStyle(element).backgroundColor + element.className"))

    by_reward = colour()
    assert by_reward.endswith(("/ 0)t", "rgba(0, 0, 0, 0)t"))
    page.select_option("#mode", "change")
    assert colour() != by_reward
    expect(page.locator("#scale-name")).to_have_text("change of log-prob")
    page.select_option("#view", "pairs")
    expect(page.locator("#count")).to_contain_text("has no change of log-prob")


def test_each_run_shows_its_own(open_page: Open) -> None:
    page = open_page()
    page.select_option("#view", "during")
    first = page.locator(".card").nth(5).inner_text()
    page.select_option("#run", label="scalar-seed-2")
    assert page.locator(".card").nth(5).inner_text() != first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_button_turns_the_colours(open_page: Open, scheme: str) -> None:
    page = open_page(color_scheme=scheme)

    def paper() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(colour.split("(")[1].split(",")[0])

    before = paper()
    assert (before < 60) == (scheme == "dark")
    page.locator("#theme").click()
    assert (paper() < 60) != (scheme == "dark")
    page.locator("#theme").click()
    assert paper() == before


def test_every_chart_has_a_name_and_a_table(open_page: Open) -> None:
    page = open_page()
    page.get_by_text("More metrics").click()
    figures = page.locator("figure").all()
    assert len(figures) > 8
    for figure in figures:
        label = figure.locator("svg[role=img]").first.get_attribute("aria-label")
        assert label
        figure.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(figure.locator("table")).to_be_visible()
        assert figure.locator("tbody tr").count() > 1
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, select, input")]
            .filter((each) => !each.labels?.length && !each.ariaLabel && !each.textContent.trim()).length"""
    )
    assert unnamed == 0


def test_a_chart_can_be_read_off(open_page: Open) -> None:
    page = open_page()
    page.locator("#comparison .wide-only svg").hover(position={"x": 47, "y": 100})
    expect(page.locator("#tip")).to_contain_text("update 0")
    expect(page.locator("#tip")).to_contain_text("scalar")


def test_motion_is_kept_where_it_is_wanted_only(open_page: Open) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert open_page(reduced_motion="reduce").evaluate(behaviour) == "auto"
    assert open_page(reduced_motion="no-preference").evaluate(behaviour) == "smooth"


def test_in_print_all_is_light_and_open(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("#controls")).to_be_hidden()
    expect(page.locator(".run .command").last).to_be_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".run .command").last).to_be_hidden()


def test_500_completions_are_drawn_as_they_are_asked_for(open_page: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "long", updates=50, sampled=10, words=180)
    page_file = tmp_path / "report.html"
    page_file.write_bytes(build(read_runs([run])).html)
    assert page_file.stat().st_size < 10_000_000
    page = open_page(page_file)
    page.select_option("#view", "during")
    assert page.locator("#count").inner_text() == "503 completions."
    expect(page.locator(".card")).to_have_count(12)
    few = page.locator("*").count()
    page.locator("#more").click()
    expect(page.locator(".card")).to_have_count(24)
    # What is drawn grows with what is shown, not with what is there.
    assert page.locator("*").count() < 2.5 * few
    assert page.locator(".card .t").count() > 12 * 150


def test_one_update_is_one_update(open_page: Open, tmp_path: Path) -> None:
    page_file = tmp_path / "report.html"
    page_file.write_bytes(build(read_runs([write_run(tmp_path / "a", updates=1)])).html)
    page = open_page(page_file)
    expect(page.locator(".side h4").nth(1)).to_contain_text("After 1 update")
    assert re.findall(r"\b1 updates?\b", page.inner_text("body")).count("1 update") > 6
    assert not re.search(r"\b1 updates\b", page.inner_text("body"))


def test_what_did_not_fit_is_said(open_page: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "long", updates=40, sampled=5)
    page_file = tmp_path / "report.html"
    page_file.write_bytes(build(read_runs([run]), budget=80_000).html)
    page = open_page(page_file)
    page.select_option("#view", "during")
    expect(page.locator("#count")).to_contain_text(re.compile(r"^(\d+) completions\. Showing \1 of 203: evenly over"))


def test_a_run_that_has_only_begun_is_a_page_without_errors(open_page: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "begun", updates=6)
    page_file = tmp_path / "report.html"
    (run / "metrics.jsonl").write_text('{"update": 0, "held_out/score": 0.25}\n')
    (run / "rollouts.jsonl").write_bytes(b"")
    page_file.write_bytes(build(read_runs([run])).html)
    expect(open_page(page_file).locator("#completions")).to_contain_text("no completions to show")
    write_rows(run / "rollouts.jsonl", [row(0, random.Random(1), 0.5, held_out=True)])
    page_file.write_bytes(build(read_runs([run])).html)
    page = open_page(page_file)
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator("#runs .trouble")).to_have_text("not finished: 0 of 6 updates so far")
