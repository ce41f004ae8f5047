"""The tables of README.md, from first.json, choose-cpu.json, corrected.json, closing.json and worth.json.

Run `python -m studies.summarization.tables`.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ARMS = ("rouge_l", "bleu", "support", "support_copied_0", "score", "unsupported_share", "copied", "length")
CURVES = ("score", "rouge_l", "unsupported_share", "copied", "length")


def arms(found: dict[str, Any]) -> str:
    """The arms without RL, at their end."""
    lines = [
        "| study | arm | ROUGE-L | BLEU | `support` | `support`, `copied=0` | the study's critic | unsupported share | "
        "copied | length |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["arms"]:
        lines.append(f"| {row['study']} | `{row['arm']}` | {cells(row['metrics'], ARMS)} |")
    return "\n".join(lines)


def curves(found: dict[str, Any]) -> str:
    """The two arms that got somewhere, update by update."""
    lines = [
        "| arm | rate | KL coefficient | update | held-out score | ROUGE-L | unsupported share | copied | length | "
        "sampled score | KL per token |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["curves"]:
        own = " | ".join("" if row[key] is None else f"{row[key]:.3f}" for key in ("sampled_score", "kl"))
        rate = f"{row['learning_rate']:.0e}".replace("e-0", "e-")
        setting = f"`{row['arm']}` | {rate} | {row['kl_coefficient']} | {row['update']}"
        lines.append(f"| {setting} | {cells(row['metrics'], CURVES)} | {own} |")
    return "\n".join(lines)


def agreement(found: dict[str, Any]) -> str:
    """Critics against ROUGE-L."""
    lines = [
        "| critic | its score, among samples of a prompt | its verdicts, among words of a sample |",
        "|---|---|---|",
    ]
    for name, row in found["agreement"]["critics"].items():
        lines.append(f"| {name} | {row['score']:.2f} | {row['words']:.2f} |")
    return "\n".join(lines)


def choices(_: dict[str, Any]) -> str:
    """What was tried on a CPU before the two main arms ran."""
    lines = [
        "| arm | critic | slopes | rate | ROUGE-L | unsupported share | copied | length | sampled score | "
        "KL per token |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in json.loads((HERE / "choose-cpu.json").read_text())["rows"]:
        rate = f"{row['learning_rate']:.0e}".replace("e-0", "e-") if row["learning_rate"] else ""
        scored = (
            "" if row["sampled_score"] is None else f"{row['sampled_score_before']:.2f} → {row['sampled_score']:.2f}"
        )
        kl = "" if row["kl"] is None else f"{row['kl']:.2f}"
        own = cells(row["metrics"], ("rouge_l", "unsupported_share", "copied", "length"))
        lines.append(
            f"| `{row['arm']}` | {row['critic'] or ''} | {row['slopes'] or ''} | {rate} | {own} | {scored} | {kl} |"
        )
    return "\n".join(lines)


def corrected(_: dict[str, Any]) -> str:
    """The same run before and after a first correction of the estimator."""
    lines = [
        "| arm | estimator | update | ROUGE-L | score | unsupported share | copied | length | sampled score | "
        "sampled length | KL per token |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in json.loads((HERE / "corrected.json").read_text())["rows"]:
        if row["metrics"] or row["update"] % 8 == 0:
            own = cells(row["metrics"], ("rouge_l", "score", "unsupported_share", "copied", "length"))
            sampled = cells(row["sampled"], ("score", "length", "kl"))
            lines.append(f"| `{row['arm']}` | {row['estimator']} | {row['update']} | {own} | {sampled} |")
    return "\n".join(lines)


def closing(_: dict[str, Any]) -> str:
    """Words before and after a full stop belonged to the end, and the score alone, on two CPU cores."""
    lines = [
        "| arm | seed | update | ROUGE-L | ROUGE-1 | ROUGE-2 | score | unsupported share | copied | length | "
        "sampled score | KL per token |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    keys = ("rouge_l", "rouge_1", "rouge_2", "score", "unsupported_share", "copied", "length")
    rows = json.loads((HERE / "closing.json").read_text())["rows"]
    for row in rows:
        if row["update"] or row is rows[0]:
            arm = f"`{row['arm']}` | {row['seed']}" if row["update"] else "start | "
            own, sampled = cells(row["metrics"], keys), cells(row["sampled"], ("score", "kl"))
            lines.append(f"| {arm} | {row['update']} | {own} | {sampled} |")
    return "\n".join(lines)


def worths(_: dict[str, Any]) -> str:
    """What a good and a poor word say about the score."""
    lines = [
        "| critic | good, poor phrases of a summary, by severity | fit | one slope | explains | two slopes | explain |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in json.loads((HERE / "worth.json").read_text()).items():
        for key, over in (("all", "over all prompts"), ("of_a_prompt", "among the samples of a prompt")):
            one, two = row[key]["one"], row[key]["two"]
            good, poor = two["slopes"]
            lines.append(
                f"| {name} | {row['good']:.1f}, {row['poor']:.1f} | {over} | {one['slopes'][0]:.3f} | "
                f"{share(one['explained'])} | {good:.3f}, {poor:.3f} | {share(two['explained'])} |"
            )
    return "\n".join(lines)


def share(explained: float | None) -> str:
    return "–" if explained is None else f"{explained:.0%}"


def cells(metrics: dict[str, float], keys: tuple[str, ...]) -> str:
    """Cells of a table row; a metric that is missing leaves its cell empty."""
    numbers = [(key, metrics.get(key)) for key in keys]
    return " | ".join("" if value is None else f"{value:.{1 if key == 'length' else 3}f}" for key, value in numbers)


def written(page: str, found: dict[str, Any]) -> str:
    """The page with its tables made anew, each between its marks."""
    for make in (arms, curves, agreement, choices, corrected, closing, worths):
        begin, end = (f"<!-- {make.__name__}: {side} -->" for side in ("written by tables.py", "end"))
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{make(found)}\n{end}{rest.split(end)[1]}"
    return page


def main() -> None:
    page = HERE / "README.md"
    page.write_text(written(page.read_text(), json.loads((HERE / "first.json").read_text())))


if __name__ == "__main__":
    main()
