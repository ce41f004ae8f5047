"""The table of a whole step, from step.json into README.md: python -m studies.h200.table"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BEGIN, END = "<!-- below: written by table.py from step.json -->", "<!-- above: written by table.py -->"
SIDES = {"ours": "text2grad", "fp32": "TRL, fp32 weights", "bf16": "TRL, bf16 weights", "paged": "TRL, paged sampling"}


def table(measured: dict[str, Any]) -> str:
    """A row for each side of each run."""
    lines = [
        "| run | side | s a step | least, most | sample | critic | update | GPU busy | of the peak | GiB | steps |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    for run, facts in measured.items():
        for name, side in facts["sides"].items():
            if "seconds" not in side:
                lines.append(f"| {run} | {SIDES[name]} | {side.get('failed', 'failed')} | | | | | | | | |")
                continue
            parts, busy = side["parts"], side.get("busy_share")
            update = f"{parts['update']:.2f}" if "update" in parts else ""
            cells = [
                f"{side['seconds']:.2f}",
                f"{min(side['each']):.2f}, {max(side['each']):.2f}",
                f"{parts['sample']:.2f}",
                f"{parts['critic']:.2f}",
                update,
                "" if busy is None else f"{busy:.0%}",
                f"{side['mfu_step']:.1%}",
                f"{side['gib']:.1f}",
                f"{side['optimizer_steps']:.1f}",
            ]
            lines.append(f"| {run} | {SIDES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    page = HERE / "README.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    measured = json.loads((HERE / "step.json").read_text())
    page.write_text(f"{before}{BEGIN}\n\n{table(measured)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
