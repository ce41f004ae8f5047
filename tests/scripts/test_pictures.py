"""The README's picture is what the code says today, and a browser shows it whole, without asking the network."""

import re
import subprocess
from pathlib import Path

import pytest
from scripts.pictures import PICTURES, align_picture

from tests.conftest import program


def test_the_picture_in_the_readme_is_what_the_code_draws() -> None:
    assert (PICTURES / "align.svg").read_text(encoding="utf-8") == align_picture(), "run `make pictures`"
    assert "docs/pictures/align.svg" in (PICTURES.parent.parent / "README.md").read_text()


PAGE = """<!doctype html><body style="margin:0">{svg}<pre id="found"></pre><script>
const frame = document.querySelector('svg').viewBox.baseVal;
const outside = [...document.querySelectorAll('svg text')].filter(text => {{
  const box = text.getBBox(), matrix = text.getCTM();
  return matrix.a / document.querySelector('svg').getCTM().a * (box.x + box.width) + 14 > frame.width;
}});
document.getElementById('found').textContent =
  `TEXTS ${{document.querySelectorAll('svg text').length}} OUTSIDE ${{outside.length}} REQUESTS ` +
  performance.getEntriesByType('resource').length;
</script></body>"""


@pytest.mark.system("chromium")
def test_a_browser_shows_the_picture_whole_and_asks_for_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(svg=(PICTURES / "align.svg").read_text(encoding="utf-8")), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    done = subprocess.run(
        [str(program("chromium")), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r"TEXTS (\d+) OUTSIDE (\d+) REQUESTS (\d+)", done.stdout.split("<pre", 1)[-1])
    assert found, done.stderr
    texts, outside, requests = map(int, found.groups())
    assert texts > 50
    assert (outside, requests) == (0, 0)
