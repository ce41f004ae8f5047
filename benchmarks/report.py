"""How soon 500 completions of 200 tokens are on the screen, and how large their page is.

Makes a run folder, builds the page, opens it in the system's Chromium from a cold start of the page, and waits until
the first completions are drawn; best of a few. Asserted: under 2 s to load, under 10 MB, nothing asked of a network.
Ends with `seconds=… megabytes=… build_seconds=…`. Needs playwright and Chromium.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import Browser, sync_playwright
from tests.report.made_runs import write_run

from text2grad.report.folders import read_runs
from text2grad.report.page import build

COMPLETIONS, TOKENS = 500, 200


def load_seconds(browser: Browser, path: Path) -> float:
    """From asking for the file until a card is there."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector(".card")
    seconds = time.perf_counter() - start
    # The same work: all of them are in the page, of the length promised.
    page.select_option("#view", "during")
    count = page.evaluate("JSON.parse(document.getElementById('data').textContent).runs[0].during.length")
    tokens = page.evaluate("JSON.parse(document.getElementById('data').textContent).runs[0].during[9].pieces.length")
    assert count >= COMPLETIONS and tokens >= TOKENS, f"wanted {COMPLETIONS} × {TOKENS}, got {count} × {tokens}"
    assert asked == [path.as_uri()], f"asked for {asked}"
    page.close()
    return seconds


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", updates=50, sampled=10, held_out=20, words=200)
        start = time.perf_counter()
        page = build(read_runs([run]))
        built = time.perf_counter() - start
        path = Path(folder) / "report.html"
        path.write_bytes(page.html)
        with sync_playwright() as playwright:
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
            times = [load_seconds(browser, path) for _ in range(5)]
            browser.close()
    megabytes = len(page.html) / 1e6
    print(f"{page.completions} completions; loads: {', '.join(f'{seconds:.2f}' for seconds in times)} s")
    assert min(times) < 2, f"wanted the page within 2 s, got {min(times):.2f}"
    assert megabytes < 10, f"wanted less than 10 MB, got {megabytes:.1f}"
    print(f"seconds={min(times):.2f} megabytes={megabytes:.1f} build_seconds={built:.2f}")


if __name__ == "__main__":
    main()
