"""The recording in the README: `python scripts/recording.py docs/pictures/studio.gif`.

Starts a studio in a scratch folder, writes a critique, lets the model learn, and looks at what changed. Each frame is a
screenshot with the time it stays. Wants Chromium and ffmpeg (apt-get install chromium ffmpeg).
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

WIDTH, HEIGHT = 1180, 740
WRONG = {
    "derailment": "it was a blast",
    "24 people": "it was 11",
    "lightning strike": "it was an old bomb",
    "Ostby": "the town is Halden",
}
"""What is wrong with the first completion of the first prompt, which follows from the seed."""
SELECTED = ("afternoon", "It was in the morning")
CURSOR = """() => {
  const dot = document.createElement("div");
  Object.assign(dot.style, { position: "fixed", width: "18px", height: "18px", margin: "-9px", borderRadius: "50%",
    zIndex: 99, background: "rgb(8 103 173 / 0.35)", border: "2px solid rgb(8 103 173)",
    pointerEvents: "none", left: "-50px" });
  document.body.append(dot);
  const follow = (event) => {
    dot.style.left = `${event.clientX}px`;
    dot.style.top = `${event.clientY}px`;
  };
  addEventListener("pointermove", follow, true);
}"""


class Film:
    """Frames, each with the seconds that it is shown."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.frames: list[tuple[Path, float]] = []

    def shot(self, seconds: float) -> None:
        path = self.folder / f"{len(self.frames):04}.png"
        self.page.screenshot(path=path)
        self.frames.append((path, seconds))

    def type(self, text: str) -> None:
        for start in range(0, len(text), 3):
            self.page.keyboard.type(text[start : start + 3])
            self.page.wait_for_timeout(60)
            self.shot(0.12)

    def move(self, x: float, y: float, steps: int = 5) -> None:
        for step in range(1, steps + 1):
            self.page.mouse.move(
                x * step / steps + 400 * (1 - step / steps), y * step / steps + 300 * (1 - step / steps)
            )
            self.shot(0.06)

    def click(self, target: Locator) -> None:
        box = target.bounding_box()
        assert box
        self.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.shot(0.25)
        target.click()

    def write(self, picture: Path) -> None:
        lines = [f"file '{path}'\nduration {seconds}" for path, seconds in self.frames]
        listed = self.folder / "frames.txt"
        listed.write_text("\n".join([*lines, f"file '{self.frames[-1][0]}'"]))
        colours = (
            "split[a][b];[a]palettegen=max_colors=96:stats_mode=diff[p];"
            "[b][p]paletteuse=dither=none:diff_mode=rectangle"
        )
        source = [
            "-f",
            "concat",
            "-safe",
            "0",
            "-i",
            str(listed),
            "-vf",
            f"fps=12.5,mpdecimate=hi=1:lo=1:frac=0,{colours}",
        ]
        subprocess.run(["ffmpeg", "-v", "error", "-y", *source, "-fps_mode", "vfr", str(picture)], check=True)
        took = sum(seconds for _, seconds in self.frames)
        print(f"{picture}: {took:.0f} s, {picture.stat().st_size / 1e6:.2f} MB, {len(self.frames)} frames")


def tokens_of(card: Locator, words: str) -> tuple[float, float, float, float]:
    """Where some words begin and end on the screen."""
    found = card.evaluate(
        """(card, words) => {
          const tokens = [...card.querySelectorAll(".completion .t")];
          const start = tokens.map((each) => each.textContent).join("").indexOf(words);
          let end = 0;
          const inside = tokens.filter((each) => {
            end += each.textContent.length;
            return end > start && end - each.textContent.length < start + words.length;
          });
          const [first, last] = [inside[0].getClientRects(), [...inside.at(-1).getClientRects()].slice(-1)];
          const [a, b] = [[...first].at(-1), last[0]];
          return [a.right - 6, a.y + a.height / 2, b.right - 6, b.y + b.height / 2];
        }""",
        words,
    )
    return found[0], found[1], found[2], found[3]


def text_of(card: Locator) -> str:
    return "".join(card.locator(".completion .t:not(.bare)").all_text_contents())


def play(film: Film) -> None:
    page = film.page
    card = page.locator("#list > .card").first
    text = text_of(card)
    wrong = [words for words in WRONG if words in text][:2]
    if len(wrong) < 2 or SELECTED[0] not in text:
        sys.exit(f"the first completion is another one by now; write new words for it into WRONG and SELECTED: {text}")
    film.shot(2.2)
    film.click(page.get_by_role("textbox", name="Critique of completion A"))
    said = [f"“{words}” is wrong: {WRONG[words]}." for words in wrong]
    film.type(" ".join([*said, "“Monday” is right."]))
    page.wait_for_timeout(600)
    film.shot(2)
    x, y, to_x, to_y = tokens_of(card, SELECTED[0])
    film.move(x - 20, y)
    page.mouse.down()
    page.mouse.move(to_x, to_y, steps=4)
    page.mouse.up()
    film.shot(0.5)
    film.type(SELECTED[1])
    page.keyboard.press("Alt+2")
    page.wait_for_timeout(400)
    film.shot(1.4)
    page.keyboard.press("Enter")
    page.wait_for_timeout(900)
    film.shot(1.2)
    film.click(page.locator("#learn"))
    while not page.locator("#learned h1").is_visible():
        film.shot(0.2)
        page.wait_for_timeout(100)
    page.wait_for_timeout(500)
    film.shot(3)
    for _ in range(9):
        page.mouse.wheel(0, 40)
        page.wait_for_timeout(40)
        film.shot(0.08)
    film.shot(4)
    film.click(page.locator("#unlearn"))
    expect(page.locator("#said")).to_contain_text("Back at version")
    film.shot(2)


def main() -> None:
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/studio.gif")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None or shutil.which("ffmpeg") is None:
        sys.exit("needs Chromium and ffmpeg: apt-get install chromium ffmpeg")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, "-m", "text2grad", "studio", "--out", f"{folder}/studio", "--port", "0"]
        server = subprocess.Popen([*command, "completions=3", "ahead=8"], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address)
        page.locator("#name").fill("Ada")
        page.keyboard.press("Enter")
        page.locator("#order").select_option("file")
        page.locator("#queue a").first.click(timeout=120_000)
        page.locator("#list .card .t").first.wait_for(timeout=120_000)
        page.wait_for_timeout(3000)
        page.evaluate(CURSOR)
        film = Film(page, Path(folder))
        try:
            play(film)
            film.write(picture)
        finally:
            browser.close()
            server.terminate()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    main()
