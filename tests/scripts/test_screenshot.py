"""The picture shows the page in the colours asked for."""

import struct
import zlib
from pathlib import Path

import pytest
from scripts.screenshot import take

from tests.report.made_runs import write_run
from text2grad.report.folders import read_runs
from text2grad.report.page import build


def first_pixel(png: bytes) -> tuple[int, int, int]:
    """Of the first row, which PNG filters leave as it is in its first pixel."""
    data = b"".join(chunk for kind, chunk in chunks(png) if kind == b"IDAT")
    red, green, blue = zlib.decompress(data)[1:4]
    return red, green, blue


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    found, place = [], 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        found.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + length]))
        place += 12 + length
    return found


@pytest.mark.system("chromium")
@pytest.mark.parametrize(("dark", "section"), [(False, "comparison"), (True, "completions")])
def test_a_picture_of_the_page(tmp_path: Path, dark: bool, section: str) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "picture.png"
    page.write_bytes(build(read_runs([write_run(tmp_path / "a", updates=8)])).html)
    take(page, picture, section, dark)
    png = picture.read_bytes()
    assert struct.unpack(">II", png[16:24]) == (2400, 1720)
    assert (sum(first_pixel(png)) < 200) == dark
