"""A picture of a page: `python scripts/screenshot.py report.html picture.png [--section completions] [--dark]`.

For the README and for looking at the page in review. Uses the system's Chromium.
"""

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def take(page: Path, picture: Path, section: str = "comparison", dark: bool = False, width: int = 1200) -> None:
    """One section of the page, from its heading down, at twice the resolution; one token is pointed at."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        sys.exit("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(
            viewport={"width": width, "height": 860}, device_scale_factor=2, color_scheme="dark" if dark else "light"
        )
        view.goto(page.absolute().as_uri())
        view.emulate_media(reduced_motion="reduce")
        if section != "comparison":
            view.evaluate("id => document.getElementById(id).scrollIntoView()", section)
        if section == "completions" and (poor := view.locator(".completion .s-poor")).count():
            poor.first.hover()
        view.screenshot(path=picture)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--section", default="comparison", choices=["comparison", "training", "completions", "runs"])
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1200)
    args = parser.parse_args()
    take(args.page, args.picture, args.section, args.dark, args.width)


if __name__ == "__main__":
    main()
