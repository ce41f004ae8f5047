"""Draw the pictures of the README again, from what the code says today: `make pictures`."""

import html
import io
import json
import re
from importlib import resources
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from text2grad.feedback.align import AlignSettings
from text2grad.feedback.align.overlap import segments
from text2grad.feedback.rows import Row
from text2grad.report.terminal import show

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SHOWN = ("lighthouse", "off by one", "menu", "moon")
"""Which of the shipped examples are in the picture: enough to see what the tool does, few enough for one screen."""

THEME = TerminalTheme((24, 26, 31), (214, 216, 220), [(90, 90, 90)] * 8, [(160, 160, 160)] * 8)

# Rich's own frame loads a font from the network; this one takes the reader's monospace font.
FRAME = """<svg class="rich-terminal" viewBox="0 0 {terminal_width} {terminal_height}" \
xmlns="http://www.w3.org/2000/svg" role="img" \
aria-label="text2grad align: critiques aligned with the words they are about">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="10" fill="#181a1f"/>
<g transform="translate(14, 10) scale(0.975)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def align_picture() -> str:
    """The coloured terminal view of a few shipped examples, as SVG."""
    console = Console(
        record=True, width=96, file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False
    )
    lines = resources.files("text2grad.feedback").joinpath("examples.jsonl").read_bytes().splitlines()
    for line in lines:
        if json.loads(line)["id"].startswith(SHOWN):
            row = Row.of(json.loads(line))
            found = row.align(AlignSettings())
            show(console, str(row.id), row.completion, row.critique.feedback, found, segments(found.spans))
    return widened(console.export_svg(title="", theme=THEME, code_format=FRAME, unique_id="align"))


def widened(svg: str) -> str:
    """Rich sets text in as many columns as it has characters; emoji and CJK take two each."""

    def mend(match: re.Match[str]) -> str:
        text = html.unescape(match["text"])
        length = float(match["length"]) * cell_len(text) / len(text)
        return f'{match["head"]}textLength="{length:g}"{match["tail"]}{match["text"]}</text>'

    return re.sub(
        r'(?P<head><text [^>]*)textLength="(?P<length>[\d.]+)"(?P<tail>[^>]*>)(?P<text>[^<]+)</text>', mend, svg
    )


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / "align.svg").write_text(align_picture(), encoding="utf-8")
    print(f"drew {PICTURES / 'align.svg'}")


if __name__ == "__main__":
    main()
