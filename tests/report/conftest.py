"""A browser for the tests of the page, and made-up runs to show in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.conftest import program
from tests.report.made_runs import write_run
from text2grad.report.folders import read_runs
from text2grad.report.page import build

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """No longer than a file of tests: while it is open an event loop runs in this thread, and others cannot."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield started
        started.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two arms: three seeds of one, two of the other."""
    folder = tmp_path_factory.mktemp("runs")
    made = [write_run(folder / f"span-seed-{seed}", "span", seed, updates=24) for seed in (1, 2, 3)]
    return made + [write_run(folder / f"scalar-seed-{seed}", "scalar", seed, updates=24) for seed in (1, 2)]


@pytest.fixture(scope="session")
def page_file(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(build(read_runs(runs)).html)
    return path


@pytest.fixture
def open_page(browser: Browser, page_file: Path) -> Iterator[Open]:
    """Opens a page; afterwards: it asked nothing of a network, and the console stayed empty."""
    contexts: list[BrowserContext] = []
    trouble: list[str] = []

    def start(path: Path = page_file, **options: object) -> Page:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("request", lambda asked: None if asked.url == path.as_uri() else trouble.append(f"asked: {asked.url}"))
        page.goto(path.as_uri())
        return page

    yield start
    for context in contexts:
        context.close()
    assert trouble == []
