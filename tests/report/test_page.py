"""Facts about the HTML, without a browser."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.report.made_runs import SCRIPT, write_rows, write_run
from text2grad.report.folders import read_runs
from text2grad.report.page import build


def html_of(*folders: Path, **options: Any) -> str:
    return build(read_runs(folders), **options).html.decode()


def data_of(html: str) -> Any:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(data)


def test_it_is_one_file_that_refers_to_nothing_outside(page_file: Path) -> None:
    html = page_file.read_text(encoding="utf-8")
    assert re.findall(r"<(?:link|img|iframe|object|base|form action)\b", html) == []
    assert re.findall(r"""(?:src|href)=["'](?!#)""", html) == []
    assert not re.findall(r"url\(|@import", html)


def test_the_policy_names_the_hashes_of_its_own_script_and_style(page_file: Path) -> None:
    html = page_file.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    policy = policy.replace("&#39;", "'")
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for name, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert " style=" not in html and " onclick=" not in html


def test_text_cannot_leave_the_data(tmp_path: Path) -> None:
    html = html_of(write_run(tmp_path / "a", updates=4))
    texts = ["".join(row["pieces"]) for row in data_of(html)["runs"][0]["during"]]
    assert SCRIPT in texts
    assert "window.hacked = true</script>" not in html and "<img" not in html
    assert html.count("<script") == 2


def test_names_and_settings_are_escaped(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "<b>run & co", updates=2)
    (folder / "config.yaml").write_text('credit: "<script>alert(1)</script>"\n')
    (folder / "run.json").write_text(json.dumps({"device": "<i>cpu", "command": ["a", "<u>"], "data": {"<s>": "&"}}))
    write_rows(folder / "metrics.jsonl", [{"update": 1, "score/mean": 0.1, "warnings": ["<em>careful"]}])
    html = html_of(folder)
    assert not re.findall(r"<(?:b|i|u|s|em)>(?:run|cpu|careful)?", html.replace("<em>good", "").replace("<em>poor", ""))
    assert html.count("<script") == 2
    assert "&lt;b&gt;run &amp; co" in html and "&lt;em&gt;careful" in html


def test_prompts_are_kept_once(tmp_path: Path) -> None:
    data = data_of(html_of(write_run(tmp_path / "a", updates=4, held_out=3)))
    assert len(set(data["prompts"])) == len(data["prompts"])
    before, after = data["runs"][0]["pairs"][0]
    assert before["prompt"] == after["prompt"]


def test_it_says_how_to_reproduce_each_run(tmp_path: Path) -> None:
    html = html_of(write_run(tmp_path / "a", seed=3, updates=4))
    assert "text2grad train credit=span seed=3 &#39;out=runs/my run&#39;" in html
    for fact in ("2.9.0", "5.10.1", "ab" * 32, "learning_rate: 1.0e-05", "seed 3, 4 updates", "residual_ratio is 1.2"):
        assert fact in html


def test_charts_are_there_for_what_was_measured_and_for_nothing_else(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=8)
    html = html_of(folder)
    titles = re.findall(r"<h4>([^<]+)</h4>", html)
    assert titles[:6] == ["Score", "Reward", "KL to the reference", "Length", "Diversity", "Repetition"]
    assert "Score of the training critic" not in html and "Time by part" in html and "Locality" in html
    assert html.count("<figure") == html.count("The numbers as a table</summary>") > 8
    rows = [{"update": n, "held_out/score": 0.1 * n, "held_out/critic_score": 0.05 * n} for n in range(4)]
    write_rows(folder / "metrics.jsonl", rows)
    html = html_of(folder)
    assert "Score of the training critic" in figures(html)
    assert "Time by part" not in html and "KL to the reference" not in html and "Locality" not in html


def declare(folder: Path, metrics: object) -> None:
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(facts | {"metrics": metrics}))


def figures(html: str) -> dict[str, str]:
    """Title → markup of each chart that has one."""
    return {found[1]: found[0] for found in re.findall(r"(<figure.*?<h4>([^<]*)</h4>.*?</figure>)", html, re.DOTALL)}


def test_a_metric_that_the_run_declares_is_drawn_with_its_title_help_and_direction(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=4)
    rows = [{"update": n, "held_out/score": 0.1 * n, "held_out/facts_right": 0.2 * n, "mine/<x>": -n} for n in range(4)]
    write_rows(folder / "metrics.jsonl", rows)
    declare(
        folder,
        {
            "held_out/facts_right": {"title": "Facts right", "help": "Share of the facts stated.", "better": "higher"},
            "mine/<x>": {"title": "My <x>", "help": "What I measure.", "better": "lower"},
            "held_out/score": {"title": "Held-out F1", "help": "Of the answers.", "better": "higher"},
        },
    )
    html = html_of(folder)
    assert "a: held-out F1 rose from 0 to 0.300 in 3 updates." in html
    assert "Held-out F1 per update. Of the answers. Higher is better." in html
    comparison, training = html.split('<section id="comparison">')[1].split('<section id="training">')
    held_out = figures(comparison)["Facts right"]
    assert "Share of the facts stated. Higher is better." in held_out and "<td>0.600</td>" in held_out
    more = training.split("<h3>More metrics</h3>")[1]
    assert "What I measure. Lower is better." in figures(more)["My &lt;x&gt;"]


def test_a_metric_without_a_declaration_is_drawn_by_its_key(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=4)
    write_rows(
        folder / "metrics.jsonl",
        [{"update": n, "score/mean": 0.5, "mine": n, "held_out/mine": n, "update/grad_norm": 1} for n in range(1, 4)],
    )
    html = html_of(folder)
    comparison, training = html.split('<section id="comparison">')[1].split('<section id="training">')
    assert list(figures(comparison)) == ["held_out/mine"]
    assert list(figures(training.split("More metrics")[1])) == ["mine", "update/grad_norm"], "a user's come first"
    assert "is better" not in figures(training)["mine"]


def test_a_broken_declaration_is_said_and_the_metric_is_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=2)
    write_rows(folder / "metrics.jsonl", [{"update": n, "mine": n} for n in range(3)])
    declare(folder, {"mine": {"title": "Mine", "help": "x", "better": "up"}, "yours": 3})
    html = html_of(folder)
    assert "mine" in figures(html)
    assert "run.json: metrics: mine: " in html and "run.json: metrics: yours: " in html
    declare(folder, ["mine"])
    assert "mine" in figures(html_of(folder))


def test_what_never_happened_stays_out_of_the_way(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=2)
    write_rows(
        folder / "metrics.jsonl",
        [{"update": n, "score/mean": 0.1, "reward/mean": n, "critic/unscored_frac": 0} for n in range(1, 3)],
    )
    known, more = html_of(folder).split('<section id="training">')[1].split("<h3>More metrics</h3>")
    assert "Unscored" not in figures(known) and "Unscored" in figures(more)


def test_the_run_of_a_reward_model_shows_how_well_it_finds_what_is_poor(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=4)
    rows = [
        {"update": n, "held_out/watched": 3.0 - n / 2, "held_out/poor_ap": 0.2 * n, "held_out/good_ap": 0.3 * n}
        | ({"loss/joint": 3.0 - n / 2} if n else {})
        for n in range(4)
    ]
    write_rows(folder / "metrics.jsonl", rows)
    html = html_of(folder)
    titles = re.findall(r"<h4>([^<]+)</h4>", html)
    assert titles[:3] == ["Joint loss", "Held-out loss", "Average precision on good tokens"]
    assert "Average precision on poor tokens" not in titles, "it is the chart at the top"
    assert "a: average precision on poor tokens rose from 0 to 0.600 in 3 updates." in html
    assert "No scores yet" not in html


def test_a_supervised_start_is_shown_by_its_loss(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "start", updates=1)
    write_rows(folder / "metrics.jsonl", [{"update": 0, "held_out/loss": 2.5}, {"update": 1, "loss/mean": 2.0}])
    html = html_of(folder)
    assert "start: held-out loss 2.50 at update 0." in html and "No scores yet" not in html
    assert re.findall(r"<h4>([^<]+)</h4>", html)[0] == "Training loss" and re.search(r"seed 1, 1 update\b", html)


def test_seeds_are_one_line_with_a_band(page_file: Path) -> None:
    html = page_file.read_text(encoding="utf-8")
    (main,) = re.findall(r'<div class="wide-only">(<svg.*?</svg>)</div>\n<div class="narrow-only">', html, re.DOTALL)[
        :1
    ]
    assert main.count('class="line ') == 2 and main.count('class="band ') == 2
    assert "(3 seeds, " in html and "(2 seeds, " in html
    assert "credit = scalar" in html


def test_a_run_of_one_row_or_none_is_a_page_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=4)
    (folder / "metrics.jsonl").write_text("")
    (folder / "rollouts.jsonl").write_text("")
    html = html_of(folder)
    assert "No scores yet" in html and "no completions to show" in html and "metrics.jsonl is empty" in html
    write_rows(folder / "metrics.jsonl", [{"update": 0, "held_out/score": 0.25}])
    assert "held-out score 0.250" in html_of(folder)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=40, sampled=5)
    page = build(read_runs([folder]), budget=60_000)
    run = data_of(page.html.decode())["runs"][0]
    assert len(run["during"]) < run["duringTotal"] == 203
    assert len(page.html) < 60_000 + 160_000


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As the Web Content Accessibility Guidelines reckon it; 4.5 is enough for text."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, paper: str, share: float) -> str:
    pairs = [(int(colour[index : index + 2], 16), int(paper[index : index + 2], 16)) for index in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_ground(page_file: Path, scheme: str) -> None:
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", page_file.read_text(encoding="utf-8"))
    colours = {name: light if scheme == "light" else dark for name, light, dark in found}
    for name in ("ink", "soft", "blue", "orange", "green", "violet", "grey", "brown"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("up", "down"):
        # 55 % is the strongest colour that a token gets.
        assert contrast(colours["ink"], mixed(colours[name], colours["card"], 0.55)) >= 4.5, name
