"""The studio in a real browser, against the real server and the embedded model: the whole path by mouse and by keyboard
alone, on a phone and on a wide screen; two writers, a server that is killed, and texts that would like to be scripts.

`TEXT2GRAD_PICTURES=docs/pictures` makes the pictures of docs/studio.md meanwhile.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect, sync_playwright

from tests.conftest import program

pytestmark = [pytest.mark.system("chromium"), pytest.mark.slow]
expect.set_options(timeout=30_000)  # The machine may be busy.
QUICK = ("learn.updates=3", "learn.held_out=4", "learn.compared=2", "learn.kept=4", "ahead=8", "completions=3")
PICTURES = os.environ.get("TEXT2GRAD_PICTURES")
EVIL = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


class Server:
    """`text2grad studio` in a process of its own, on one folder and one port."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder, self.port, self.address = folder, 0, ""
        self.start(*QUICK, *words)

    def get(self, page: Page, path: str) -> Any:
        """What the API tells the person of a page."""
        return page.context.request.get(self.address.partition("?")[0] + path).json()

    def start(self, *words: str) -> None:
        command = [sys.executable, "-m", "text2grad", "studio", "--out", str(self.folder), "--port", str(self.port)]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        with (self.folder.parent / "studio.log").open("a") as log:
            self.process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=log, text=True, env=env)
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=\S+", self.process.stdout.readline())
        assert found, (self.folder.parent / "studio.log").read_text()
        self.address, self.port = found[0], int(found[1])

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("studio") / "studio")
    yield server
    server.end()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A studio with a critic and without held-out prompts, in which nobody has written anything."""
    critic = "critic=text2grad.tasks.bulletin_critic:bulletin"
    few = ("learn.held_out=0", "learn.prompts=2", "learn.completions=2", "ahead=3", "completions=2")
    server = Server(tmp_path_factory.mktemp("judged") / "studio", critic, *few)
    yield server
    server.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=program("chromium"), args=options)
        yield started
        started.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, studio: Server) -> Iterator[Open]:
    """Opens the studio as somebody; afterwards: no script failed, nothing broke the policy, nobody else was asked."""
    contexts: list[BrowserContext] = []
    trouble: list[str] = []

    def heard(text: str) -> None:
        if "Failed to load resource" not in text:  # what a refusal or a killed server leaves on the console
            trouble.append(f"console: {text}")

    def start(name: str, width: int = 1600, height: int = 1000, server: Server = studio, **options: object) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: heard(message.text))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        base = server.address.partition("?")[0]
        page.on("request", lambda asked: None if asked.url.startswith((base, "data:,")) else trouble.append(asked.url))
        page.goto(server.address)
        page.get_by_label("Name", exact=True).fill(name)
        page.keyboard.press("Enter")
        expect(page.locator("#me")).to_have_text(" ".join(name.split()))
        expect(page.locator("#list .card .t").first).to_be_visible(timeout=200_000)
        return page

    yield start
    for context in contexts:
        context.close()
    assert trouble == []


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.wait_for_timeout(800)  # until scrolling has come to rest
        page.screenshot(path=Path(PICTURES) / f"studio-{name}.png")


def card(page: Page, letter: str) -> Locator:
    return page.locator("#list > .card").nth("ABCD".index(letter))


def critique(page: Page, letter: str) -> Locator:
    return page.get_by_role("textbox", name=f"Critique of completion {letter}")


def text_of(page: Page, letter: str) -> str:
    pieces = card(page, letter).locator(".completion .t:not(.bare)").all_text_contents()
    return "".join(pieces)


def picks(page: Page, letter: str, count: int) -> list[str]:
    """Words of a completion, each there once."""
    text = text_of(page, letter)
    found = [word for word in re.findall(r"[A-Za-z]{4,}|\d{2,}", text) if text.count(word) == 1]
    assert len(found) >= count, text
    return found[:count]


def tokens_with(page: Page, letter: str, word: str) -> Locator:
    """The tokens of a word: it may be cut into several."""
    box = card(page, letter).locator(".completion .t")
    pieces = box.all_text_contents()
    start = "".join(pieces).index(word)
    ends = [sum(map(len, pieces[: index + 1])) for index in range(len(pieces))]
    inside = [i for i, end in enumerate(ends) if end > start and end - len(pieces[i]) < start + len(word)]
    return box.nth(inside[0]).or_(box.nth(inside[-1]))


def point(token: Locator) -> tuple[float, float]:
    """In the middle of a token; one that is broken over two lines has two boxes."""
    box = token.evaluate(
        "each => [...each.getClientRects()].map((box) => [box.x + box.width / 2, box.y + box.height / 2]).at(-1)"
    )
    return box[0], box[1]


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=6)
    page.mouse.up()


def saved(page: Page, letter: str) -> None:
    expect(card(page, letter).locator(".saved")).to_have_text(re.compile("^saved"))


def learned(page: Page) -> None:
    """Wait for a Learn: it says how far it is, and then what it changed."""
    expect(page.locator("#progress")).to_be_visible()
    expect(page.locator("#said")).to_contain_text(re.compile("Learning: .*"))
    expect(page.locator("#learned h1")).to_have_text(re.compile(r"What version \d+ learned"), timeout=280_000)
    facts = page.locator("#learned .fact-row")
    expect(facts).to_contain_text("Held-out score")
    expect(facts).to_contain_text("KL to the start")
    expect(page.locator("#learned .parts")).to_contain_text("Direct span loss")


def test_the_whole_path_by_mouse(open_page: Open) -> None:
    page = open_page("Ada")
    start = page.locator("#facts").inner_text()
    before = text_of(page, "A")
    right, wrong, other = picks(page, "A", 3)
    box = critique(page, "A")
    box.click()
    box.press_sequentially(f"“{right}” is right. “{wrong}” is wrong. “seven ships” is wrong.")
    here = card(page, "A")
    # Words light up while typing, and what was not found says why.
    expect(tokens_with(page, "A", right).first).to_have_class(re.compile("s-good"))
    expect(tokens_with(page, "A", wrong).first).to_have_class(re.compile("s-poor.* n "))
    expect(here.locator(".missed-line")).to_contain_text("seven ships")
    expect(here.locator(".missed-line")).to_contain_text("not in the completion")
    picture(page, "write")
    # The phrase in the box and its tokens light up together, both ways.
    phrase = here.locator(".mirror .ph", has_text=wrong)
    page.mouse.move(*point(phrase))
    assert "".join(here.locator(".completion .t.on").all_text_contents()).strip() == wrong
    expect(page.locator("#tip")).to_contain_text("− poor")
    page.mouse.move(*point(tokens_with(page, "A", wrong).first))
    expect(here.locator(".mirror .ph.on")).to_have_text(wrong)

    # Words selected with the mouse, and a comment on just them.
    inside = point(tokens_with(page, "A", other).first)
    drag(page, inside, (inside[0] + 4, inside[1]))
    expect(page.locator("#note-title")).to_have_text(f"“{other}”")
    page.keyboard.type("Nobody said so")
    page.get_by_role("radio", name="severe").check()
    expect(here.locator(".found")).to_contain_text("severe: Nobody said so")
    picture(page, "comment")
    # The span is wrong by a word: drag its edge.
    edge = page.get_by_role("slider", name="End of the chosen words")
    last = here.locator(".completion .t.sel-last")
    following = here.locator(".completion .t").nth(int(last.get_attribute("data-index") or 0) + 2)
    grip = edge.bounding_box()
    assert grip
    drag(page, (grip["x"] + 7, grip["y"] + grip["height"] / 2), point(following))
    longer = page.locator("#note-title").inner_text()
    assert longer.startswith(f"“{other}") and len(longer) > len(other) + 2
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#note")).to_be_hidden()
    # A span that was read out of the words can be corrected too.
    here.locator(".chip", has_text=wrong).first.click()
    page.get_by_role("radio", name="+ good").check()
    page.get_by_role("button", name="Done").click()
    expect(here.get_by_role("button", name="read again")).to_be_visible()
    expect(tokens_with(page, "A", wrong).first).to_have_class(re.compile("s-good"))
    here.get_by_role("button", name="read again").click()
    expect(tokens_with(page, "A", wrong).first).to_have_class(re.compile("s-poor"))
    here.get_by_role("button", name="−½").click()
    saved(page, "A")
    here.get_by_role("button", name="Undo").click()
    expect(here.get_by_role("button", name="−½")).to_have_attribute("aria-pressed", "false")
    here.get_by_role("button", name="Redo").click()
    expect(here.get_by_role("button", name="−½")).to_have_attribute("aria-pressed", "true")

    # A corrected version instead, with what it changes.
    there = card(page, "B")
    text, (swapped,) = text_of(page, "B"), picks(page, "B", 1)
    there.get_by_role("button", name="Corrected version").click()
    page.get_by_role("textbox", name="Corrected version of completion B").fill(text.replace(swapped, "Tarrow"))
    expect(there.locator(".diff del")).to_have_text(swapped)
    expect(there.locator(".diff ins")).to_have_text("Tarrow")
    saved(page, "B")
    picture(page, "corrected")

    # A reload loses nothing.
    page.reload()
    expect(critique(page, "A")).to_have_value(re.compile("seven ships"))
    expect(card(page, "A").locator(".found")).to_contain_text(longer.strip("“”"))
    expect(card(page, "B").locator(".diff ins")).to_have_text("Tarrow")

    page.get_by_role("button", name="Learn from").click()
    learned(page)
    both = page.locator("#learned .card", has=page.locator(".moves")).first.locator(".side")
    expect(both).to_have_count(2)
    # Exactly the criticised tokens have colour.
    for side in both.all():
        coloured = side.locator(".t.q").count()
        assert coloured and coloured == side.locator(".t.s-good, .t.s-poor, .t.s-neutral").count()
    expect(page.locator("#learned")).to_contain_text("The same prompts, sampled again")
    picture(page, "learned")
    page.get_by_role("button", name="Undo learning").click()
    expect(page.locator("#facts")).to_contain_text(start.rpartition("version")[2].strip())
    expect(page.get_by_role("button", name="Redo learning")).to_be_enabled()
    page.get_by_role("link", name="Write", exact=True).click()
    expect(card(page, "A").locator(".completion")).to_contain_text(before.strip()[:40])
    assert text_of(page, "A") == before


def test_the_whole_path_by_keyboard_alone(open_page: Open) -> None:
    page = open_page("Grace", color_scheme="dark")
    keys = page.keyboard
    before = page.locator("#prompt").text_content() or ""
    keys.press("Alt+j")
    expect(page.locator("#prompt")).not_to_have_text(before)
    expect(page.locator("#list .card .t").first).to_be_visible()
    right, wrong = picks(page, "A", 2)
    keys.press("Alt+1")
    expect(critique(page, "A")).to_be_focused()
    keys.type(f"“{right}” is right. “{wrong}” is wrong.")
    expect(tokens_with(page, "A", wrong).first).to_have_class(re.compile("s-poor"))
    keys.press("Alt+ArrowDown")
    expect(card(page, "A").get_by_role("button", name="−½")).to_have_attribute("aria-pressed", "true")
    # Over the words: select the last two with shift, and type.
    keys.press("Escape")
    keys.press("End")
    keys.press("ArrowLeft")
    keys.press("Shift+ArrowLeft")
    keys.type("Odd end")
    found = card(page, "A").locator(".found")
    expect(found).to_contain_text("Odd end")
    title = page.locator("#note-title").inner_text()
    keys.press("Alt+Shift+ArrowLeft")
    expect(page.locator("#note-title")).not_to_have_text(title)
    keys.press("Alt+3")
    keys.press("Alt+g")
    keys.press("Enter")
    expect(found).to_contain_text("severe: Odd end")
    expect(card(page, "A").locator(".completion .t:focus")).to_have_count(1)
    # At a word: one key for the verdict, one for the severity, one to remove it.
    keys.press("Home")
    first = card(page, "A").locator(".completion .t").first
    keys.press("-")
    expect(first).to_have_class(re.compile("s-poor"))
    keys.press("1")
    expect(found).to_contain_text("mild")
    keys.press("Delete")
    expect(first).not_to_have_class(re.compile("s-poor"))
    saved(page, "A")
    keys.press("Control+z")
    expect(first).to_have_class(re.compile("s-poor"))
    keys.press("Control+Shift+z")
    expect(first).not_to_have_class(re.compile("s-poor"))
    keys.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    keys.press("Escape")
    # The next completion: a corrected version.
    keys.press("Escape")
    keys.press("Control+Enter")
    expect(critique(page, "B")).to_be_focused()
    keys.press("Alt+r")
    expect(page.get_by_role("textbox", name="Corrected version of completion B")).to_be_focused()
    keys.press("Control+Home")
    keys.type("Truly: ")
    expect(card(page, "B").locator(".diff ins")).to_contain_text("Truly")
    saved(page, "B")
    keys.press("Alt+l")
    learned(page)
    keys.press("Alt+Shift+l")
    expect(page.locator("#said")).to_contain_text("Back at version")


OUTSIDE = """([width, height]) => [...document.querySelectorAll("body *")]
    .filter((each) => each.checkVisibility() && !each.closest(".unseen, .skip"))
    .filter((each) => {
        const box = each.getBoundingClientRect();
        const fixed = each.closest("#learnbar") && (box.bottom > height + 0.5 || box.top < 0);
        const cut = each.parentElement.closest("#queue, .first, .prompt-line, #prompt");
        return box.width && !cut && (fixed || box.left < -0.5 || box.right > width + 0.5);
    })
    .map((each) => each.outerHTML.slice(0, 120))"""
"""What is wider than the screen or, of the bar at the bottom, outside of it."""


def test_a_phone(open_page: Open) -> None:
    page = open_page("Mary", width=375, height=812, has_touch=True, is_mobile=True, color_scheme="dark")
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 375
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert int(dark.split("(")[1].split(",")[0]) < 60
    critique(page, "A").fill(f"“{picks(page, 'A', 1)[0]}” is wrong.")
    expect(card(page, "A").locator(".completion .t.s-poor").first).to_be_visible()
    saved(page, "A")
    card(page, "A").evaluate("each => each.scrollIntoView()")
    picture(page, "phone")
    tokens_with(page, "A", picks(page, "A", 2)[1]).first.tap()
    box = page.locator("#note").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 375 and box["y"] + box["height"] <= 812
    page.get_by_role("radio", name="· neutral").tap()
    expect(card(page, "A").locator(".completion .t.s-neutral").first).to_be_visible()
    page.get_by_role("button", name="Done").tap()
    for width in (375, 360, 320):
        page.set_viewport_size({"width": width, "height": 700})
        for view in ("Learned", "People", "Write"):
            page.get_by_role("link", name=view, exact=True).tap()
            expect(page.locator("main h1:visible")).to_have_count(1)
            assert page.evaluate(wide) == width, view
            assert page.evaluate(OUTSIDE, [width, 700]) == [], (view, width)
        page.get_by_label("How to learn").tap()
        expect(page.get_by_label("Updates")).to_be_visible()
        assert page.evaluate(OUTSIDE, [width, 700]) == [], width
        page.get_by_label("How to learn").tap()


def test_two_hundred_prompts_and_a_name_for_every_control(open_page: Open) -> None:
    page = open_page("Katherine", color_scheme="light")
    expect(page.locator("#queue-count")).to_contain_text(re.compile(r"2\d\d prompts"))
    expect(page.locator("#queue li")).to_have_count(50)
    few = page.locator("*").count()
    page.get_by_role("button", name="Show 50 more").click()
    expect(page.locator("#queue li")).to_have_count(100)
    assert page.locator("*").count() < few + 50 * 5
    in_order = page.locator("#queue li").first.text_content() or ""
    page.get_by_label("Order").select_option("file")
    expect(page.locator("#queue li")).to_have_count(50)
    page.get_by_label("Order").select_option("uncertain")
    expect(page.locator("#queue li").first).to_have_text(in_order)
    page.get_by_label("Show").select_option("mine")
    expect(page.locator("#queue-count")).to_have_text("0 prompts")
    critique(page, "A").fill("Fine.")
    expect(page.locator("#queue-count")).to_have_text("1 prompt")
    critique(page, "A").fill("")
    expect(page.locator("#queue-count")).to_have_text("0 prompts")
    unnamed = """() => [...document.querySelectorAll("button, select, input, textarea, summary, a, [tabindex='0']")]
        .filter((each) => !each.labels?.length && !each.ariaLabel && !each.textContent.trim())
        .map((each) => each.outerHTML)"""
    tokens_with(page, "A", picks(page, "A", 1)[0]).first.click()
    assert page.evaluate(unnamed) == []
    page.keyboard.press("Escape")
    for view in ("Learned", "People"):
        page.get_by_role("link", name=view, exact=True).click()
        expect(page.locator("main h1:visible")).to_have_count(1)
        assert page.evaluate(unnamed) == []
    expect(page.locator("#people .panel").first).to_be_visible()
    # Focus can be seen, wherever it is.
    for _ in range(8):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid", page.evaluate("document.activeElement.outerHTML")


def test_two_people_are_compared_and_exported(open_page: Open) -> None:
    ada, bob = open_page("Ida"), open_page("Bob")
    ada.get_by_label("Order").select_option("file")
    expect(ada.locator("#queue a").nth(20)).to_have_attribute("href", "#/write/21")  # in the order of the file now
    before = ada.locator("#prompt").text_content() or ""
    ada.locator("#queue a[href='#/write/21']").click()  # one that has not been sampled ahead
    expect(ada.locator("#prompt")).not_to_have_text(before)
    expect(ada.locator("#list .card .t").first).to_be_visible()
    bob.goto(ada.url)
    expect(bob.locator("#prompt")).to_have_text(ada.locator("#prompt").text_content() or "")
    expect(bob.locator("#list .card .t").first).to_be_visible()
    word = picks(ada, "A", 1)[0]
    critique(ada, "A").fill(f"“{word}” is wrong.")
    saved(ada, "A")
    # The other page hears of it, and does not show it before it is asked to.
    expect(bob.get_by_text("What Ida wrote")).to_be_visible()
    expect(bob.locator(".other")).to_be_hidden()
    critique(bob, "A").fill(f"I think that “{word}” is wrong.")
    saved(bob, "A")
    bob.get_by_role("link", name="People", exact=True).click()
    line = bob.locator(".panel", has=bob.get_by_role("heading", name="Agreement")).locator(
        "tbody tr", has_text=re.compile("Ida and Bob|Bob and Ida")
    )
    expect(line).to_contain_text("1.00")
    expect(bob.locator(".panel", has=bob.get_by_role("heading", name="Today"))).to_contain_text("Bob (you)")
    picture(bob, "people")
    for name in ("JSONL", "Label Studio", "Argilla"):
        with bob.expect_download() as download:
            bob.get_by_role("link", name=name, exact=True).click()
        content = download.value.path().read_bytes()
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                content = b"".join(map(archive.read, archive.namelist()))
        assert word.encode() in content


def test_texts_are_never_html(open_page: Open, tmp_path: Path) -> None:
    page = open_page(f"<b>{'x' * 20}</b>")
    page.get_by_role("link", name="People", exact=True).click()
    rows = [{"prompt": f"Say hello. {EVIL}", "completion": f"Hello {EVIL} there"}, {"no": "prompt"}]
    file = tmp_path / "evil.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    page.locator("#own-file").set_input_files(file)
    expect(page.locator("#people form")).to_contain_text("1 added.")
    expect(page.locator("#people form")).to_contain_text("Line 2:")
    page.get_by_label("Order").evaluate("each => { each.value = 'file'; each.dispatchEvent(new Event('change')); }")
    page.get_by_role("link", name="Write", exact=True).click()
    for _ in range(4):
        shown = page.locator("#queue a").count()
        page.get_by_role("button", name=re.compile("^Show .* more")).click()
        expect(page.locator("#queue a").nth(shown)).to_be_visible()
    page.locator("#queue a", has_text="Say hello").click()
    expect(card(page, "A").locator(".completion")).to_contain_text("onerror=", timeout=120_000)
    critique(page, "A").fill(f"“there” is wrong. “Hello” {EVIL} is right.")
    expect(card(page, "A").locator(".completion .t.s-poor").first).to_be_visible()
    card(page, "A").locator(".chip").first.click()
    page.locator("#comment").fill(EVIL)
    page.keyboard.press("Enter")
    saved(page, "A")
    card(page, "A").get_by_role("button", name="Corrected version").click()
    page.get_by_role("textbox", name="Corrected version of completion A").fill(f"Hello {EVIL}")
    expect(card(page, "A").locator(".diff")).to_contain_text("onerror=")
    saved(page, "A")
    for view in ("People", "Learned", "Write"):
        page.get_by_role("link", name=view, exact=True).click()
        expect(page.locator("main h1:visible, main .reading:visible").first).to_be_visible()
        assert page.locator("img, main script, main b:not(.menu b, .parts b)").count() == 0
    other = open_page("Dorothy")
    other.goto(page.url)
    other.get_by_text("What <b>").click()
    expect(other.locator(".other")).to_contain_text("onerror=")
    assert other.locator("main img, main script").count() == 0
    assert page.evaluate("window.hacked") is None and other.evaluate("window.hacked") is None


def two_windows(open_page: Open, studio: Server, name: str) -> tuple[Page, Page]:
    """Both on a prompt that few other tests come to."""
    page = open_page(name)
    drawn = studio.get(page, "api/queue?order=random&limit=5")["items"][-1]["id"]
    page.evaluate("id => { location.hash = `#/write/${id}`; }", drawn)
    page.reload()  # so that no card of the prompt before is there
    expect(page.locator("#list .card .t").first).to_be_visible()
    second = page.context.new_page()
    second.goto(page.url)
    expect(critique(second, "C")).to_be_visible()
    return page, second


Write = Callable[[Page], None]


def clash(first: Page, second: Page, letter: str, writes: tuple[Write, Write]) -> Locator:
    """Both windows write; what the second sends comes after what the first has saved."""
    held: list[Route] = []
    second.route("**/api/critiques", lambda route: held.append(route))
    with second.expect_request("**/api/critiques"):
        writes[1](second)
    writes[0](first)
    saved(first, letter)
    held[0].continue_()
    box = card(second, letter).locator(".conflict")
    expect(box).to_contain_text("changed in another window")
    second.unroute("**/api/critiques")
    return box


def writing(letter: str, words: str, score: str = "", *, corrected: str | None = None) -> Write:
    def write(page: Page) -> None:
        critique(page, letter).fill(words)
        if score:
            card(page, letter).get_by_role("button", name=score).click()
        if corrected is not None:
            card(page, letter).get_by_role("button", name="Corrected version").click()
            page.get_by_role("textbox", name=f"Corrected version of completion {letter}").fill(corrected)

    return write


def stored(studio: Server, page: Page, letter: str) -> dict[str, Any]:
    there = studio.get(page, f"api/prompts/{page.url.rpartition('/')[2]}")["completions"]["ABCD".index(letter)]
    (mine,) = (each for each in there["critiques"] if each["author"] == page.locator("#me").inner_text())
    return dict(mine)


def test_two_windows_of_one_person_never_overwrite_each_other(open_page: Open, studio: Server) -> None:
    first, second = two_windows(open_page, studio, "Emmy")
    one, two = "The first window.", "The second window."
    # Each has what the other has not: all of it stays.
    box = clash(first, second, "A", (writing("A", one, "+½"), writing("A", two, corrected="Better.")))
    for words in (one, two, "overall +0.5", "a corrected version"):
        expect(box).to_contain_text(words)
    box.get_by_role("button", name="Keep both").click()
    saved(second, "A")
    kept = stored(studio, second, "A")
    assert (kept["feedback"], kept["score"], kept["revision"]) == (f"{one}\n{two}", 0.5, "Better.")
    expect(card(first, "A").locator(".critique-field textarea")).to_have_value(f"{one}\n{two}")
    # Both have a score and a correction: there can be one of each, so the person is asked.
    sides = writing("B", one, "−1", corrected="Uno."), writing("B", two, "+1", corrected="Due.")
    box = clash(first, second, "B", sides)
    box.get_by_role("button", name="Keep both").click()
    expect(box.get_by_role("group")).to_have_count(2)
    assert stored(studio, second, "B")["feedback"] == one
    box.get_by_role("group", name="Overall score").get_by_label("mine: overall +1").check()
    box.get_by_role("group", name="Corrected version").get_by_label("the saved one: Uno.").check()
    box.get_by_role("button", name="Keep these").click()
    saved(second, "B")
    kept = stored(studio, second, "B")
    assert (kept["feedback"], kept["score"], kept["revision"]) == (f"{one}\n{two}", 1, "Uno.")


def test_keep_mine_the_saved_one_or_spans_by_hand(open_page: Open, studio: Server) -> None:
    first, second = two_windows(open_page, studio, "Sofia")
    one, two = "The first window.", "The second window."
    box = clash(first, second, "A", (writing("A", one, "−1"), writing("A", two)))
    box.get_by_role("button", name="Keep mine").click()
    saved(second, "A")
    kept = stored(studio, second, "A")
    assert (kept["feedback"], kept["score"]) == (two, None)
    expect(critique(first, "A")).to_have_value(two)
    box = clash(first, second, "B", (writing("B", one, "−1"), writing("B", two, "+1")))
    box.get_by_role("button", name="Take the saved one").click()
    expect(critique(second, "B")).to_have_value(one)
    expect(card(second, "B").get_by_role("button", name="−1")).to_have_attribute("aria-pressed", "true")
    kept = stored(studio, second, "B")
    assert (kept["feedback"], kept["score"], kept["version"]) == (one, -1, stored(studio, first, "B")["version"])
    # A span corrected by hand in one window stays so beside what the other has written.
    wrong, other = picks(first, "C", 2)

    def by_hand(page: Page) -> None:
        critique(page, "C").fill(f"“{wrong}” is wrong.")
        card(page, "C").locator(".chip", has_text=wrong).click()
        page.get_by_role("radio", name="+ good").check()
        page.get_by_role("button", name="Done").click()

    box = clash(first, second, "C", (by_hand, writing("C", f"“{other}” is wrong.")))
    box.get_by_role("button", name="Keep both").click()
    saved(second, "C")
    expect(card(second, "C").locator(".span-line")).to_have_count(2)
    expect(tokens_with(second, "C", wrong).first).to_have_class(re.compile("s-good"))
    expect(tokens_with(second, "C", other).first).to_have_class(re.compile("s-poor"))
    assert stored(studio, second, "C")["by_hand"]


def test_a_name_that_somebody_has_is_taken_only_by_saying_so(open_page: Open) -> None:
    open_page("Hedy")
    page = open_page("Lamarr")
    page.locator("#me").click()
    page.get_by_label("Name", exact=True).fill("Hedy")
    page.keyboard.press("Enter")
    expect(page.locator("#who-error")).to_contain_text("somebody is called Hedy here already")
    assert page.locator("#me").inner_text() == "Lamarr"
    page.get_by_role("button", name="I am Hedy on another browser").click()
    expect(page.locator("#me")).to_have_text("Hedy")


def test_what_was_written_while_the_server_was_away_survives_a_reload(open_page: Open, studio: Server) -> None:
    page = open_page("Lise")
    page.route("**/api/**", lambda route: route.abort())
    critique(page, "A").fill("Written while nobody listened.")
    expect(card(page, "A").locator(".saved")).to_contain_text("kept in this browser")
    url = page.url
    page.reload()
    expect(page.locator("#away")).to_contain_text("does not answer")
    page.unroute("**/api/**")
    expect(critique(page, "A")).to_have_value("Written while nobody listened.")
    saved(page, "A")
    assert page.url == url and stored(studio, page, "A")["feedback"] == "Written while nobody listened."


def test_prompts_brought_by_mistake_can_be_removed(open_page: Open, studio: Server, tmp_path: Path) -> None:
    page = open_page("Annie")
    button = page.get_by_role("button", name="Remove prompt")
    critique(page, "A").fill("Fine.")  # What somebody has written about stays.
    saved(page, "A")
    expect(button).to_be_hidden()
    page.get_by_role("link", name="People", exact=True).click()
    page.get_by_label("A prompt of your own").fill("Brought by mistake.")
    page.get_by_role("button", name="Add the prompt").click()
    expect(page.locator("#people form")).to_contain_text("Added to the queue.")
    file = tmp_path / "many.jsonl"
    file.write_text("".join(f'{{"prompt": "Wrong file, row {row}."}}\n' for row in range(3)) + "no JSON\n" * 120)
    page.locator("#own-file").set_input_files(file)
    expect(page.locator("#people form")).to_contain_text("3 added.")
    expect(page.locator("#people form")).to_contain_text("115 more lines were rejected.")
    page.get_by_role("button", name="Undo this upload").click()
    expect(page.locator("#people form")).to_contain_text("3 taken out again.")
    (wrong,) = (
        each["id"]
        for each in studio.get(page, "api/queue?order=file&limit=500")["items"]
        if each["prompt"] == "Brought by mistake."
    )
    base = studio.address.partition("?")[0]
    page.goto(f"{base}#/write/{wrong}")
    expect(page.locator("#prompt")).to_have_text("Brought by mistake.")
    expect(button).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    button.click()
    expect(page.locator("#prompt")).not_to_have_text("Brought by mistake.")
    assert page.context.request.get(f"{base}api/prompts/{wrong}").status == 404


def test_learning_with_a_critic_alone_its_warnings_and_cancelling(open_page: Open, judged: Server) -> None:
    page = open_page("Alan", server=judged)
    keys, button = page.keyboard, page.get_by_role("button", name="Learn", exact=True)
    # The critic needs nobody's words, and is asked unless the box is not ticked.
    expect(button).to_be_enabled()
    page.get_by_label("How to learn").focus()
    keys.press("Enter")
    box = page.get_by_role("checkbox", name="also RL with the critic")
    expect(box).to_be_checked()
    box.uncheck()
    expect(button).to_be_disabled()
    box.check()
    expect(button).to_be_enabled()
    page.get_by_label("Updates").fill("1000")
    keys.press("Escape")
    expect(page.get_by_label("Updates")).to_be_hidden()
    expect(page.get_by_label("How to learn")).to_be_focused()
    keys.press("Alt+l")
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    expect(page.locator("#said")).to_contain_text("update", timeout=120_000)
    keys.press("Alt+c")
    expect(page.locator("#said")).to_contain_text("Learning was interrupted: cancelled")
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    expect(page.locator("#facts")).to_contain_text("version 0")
    page.get_by_label("How to learn").click()
    page.get_by_label("Updates").fill("1")
    button.click()
    expect(page.locator("#learned h1")).to_have_text("What version 1 learned", timeout=120_000)
    expect(page.locator("#learned .parts li")).to_have_count(1)
    expect(page.locator("#learned .parts")).to_contain_text("RL with a critic")
    expect(page.locator("#learned .intro").first).to_have_text("1 update with the critic alone, on no critiques.")
    warnings = judged.get(page, "api/learned/1")["warnings"]
    assert any("no held-out score" in each for each in warnings)
    expect(page.locator("#learned .warning")).to_have_text([f"⚠ {each}" for each in warnings])


def test_a_server_that_is_killed_while_it_learns_loses_nothing(open_page: Open, studio: Server) -> None:
    page = open_page("Rosa")
    word = picks(page, "A", 1)[0]
    critique(page, "A").fill(f"“{word}” is wrong.")
    saved(page, "A")
    version = page.locator("#facts").inner_text().rpartition("version")[2].strip()
    page.get_by_role("button", name="Learn from").click()
    expect(page.locator("#progress")).to_be_visible()
    expect(page.locator("#said")).to_contain_text("update")
    studio.end(signal.SIGKILL)
    expect(page.locator("#away")).to_contain_text("does not answer")
    critique(page, "A").fill(f"“{word}” is wrong. Written while nobody listened.")
    expect(card(page, "A").locator(".saved")).to_contain_text("kept in this browser")
    studio.start()
    expect(page.locator("#away")).to_be_hidden()
    expect(card(page, "A").locator(".saved").or_(page.locator("#learned h1")).first).to_be_visible()
    # The Learn is done again from the same weights, or says that it was interrupted; no half of it is left.
    expect(page.locator("#progress")).to_be_hidden(timeout=280_000)
    expect(page.locator("#facts")).to_contain_text("version")
    page.reload()
    expect(page.locator("#me")).to_have_text("Rosa")
    second = page.context.request.get(f"{studio.address.partition('?')[0]}api/export?format=jsonl").text()
    assert "Written while nobody listened." in second
    state = page.context.request.get(f"{studio.address.partition('?')[0]}api/state").json()
    assert state["version"] in (int(version), max(each["version"] for each in state["versions"]))
    assert state["job"] is None or state["job"]["kind"] == "sample"
