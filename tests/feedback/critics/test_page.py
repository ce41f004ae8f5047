"""The example of docs/critics.md gives what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "critics.md"


def test_the_first_example_gives_what_its_comments_say() -> None:
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    names: dict[str, object] = {}
    code: list[str] = []
    checked = 0
    for line in block.splitlines():
        if line.startswith("# "):
            exec("\n".join(code[:-1]), names)
            assert repr(eval(code[-1], names)) == line.removeprefix("# ")
            checked, code = checked + 1, []
        else:
            code.append(line)
    assert checked == 2 and not code
