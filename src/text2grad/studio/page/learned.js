// What a Learn changed: held-out score and KL first, then the criticised tokens, then the same prompts sampled again.

import { rowOf } from "./card.js";
import { diff, drawDiff } from "./diff.js";

const NOTHING = { missed: [], omissions: [], rewards: [], pieces: [] };
const PARTS = { direct: "Direct span loss", rl: "RL with a critic" };
const WANTED = { good: 1, poor: -1, neutral: 0 };
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function fact(title, value, note, kind = "") {
  const box = make("div", `fact ${kind}`);
  box.append(make("dt", "", title), make("dd", "num", value), make("p", "note", note));
  return box;
}

function changeOf(before, after) {
  const by = after - before;
  return Math.abs(by) < 5e-4 ? "no change" : `${by > 0 ? "▲" : "▼"} ${format(Math.abs(by))}`;
}

function factsOf(made) {
  const box = make("dl", "fact-row");
  const { before, after } = made.held_out || {};
  if (before && after) {
    const fell = after.score < before.score - 5e-4;
    const note = `${changeOf(before.score, after.score)}, on ${counted(before.n)} prompts that nobody criticised`;
    box.append(fact("Held-out score", `${format(before.score)} → ${format(after.score)}`, note, fell ? "worse" : ""));
  }
  if (made.kl != null) box.append(fact("KL to the start", made.kl < 1e-3 ? "< 0.001" : format(made.kl), "nats per token; small means that it still writes as before"));
  const counts = { poor: [0, 0], good: [0, 0] };
  made.criticised.forEach((each) =>
    movesOf(each).forEach(({ verdict, change }) => {
      if (!counts[verdict]) return;
      counts[verdict][1] += 1;
      if (change * WANTED[verdict] > 0) counts[verdict][0] += 1;
    }),
  );
  Object.entries(counts).forEach(([verdict, [as, all]]) => {
    if (!all) return;
    const way = verdict === "poor" ? "less likely now" : "more likely now";
    box.append(fact(`Spans called ${verdict}`, `${as} of ${all}`, way, as < all ? "" : "better"));
  });
  return box;
}

function rowFor(each) {
  let end = 0;
  const offsets = each.offsets || each.pieces.map((piece) => [end, (end += Array.from(piece).length)]);
  const row = rowOf({ pieces: each.pieces, offsets }, { ...NOTHING, spans: each.spans });
  return { ...row, before: each.before, after: each.after, rewards: undefined, critique: undefined };
}

// Per span: its words, and the mean log-prob of its tokens before and after.
function movesOf(each) {
  const row = rowFor(each);
  return row.spans
    .filter(([from, to]) => to > from)
    .map((span) => {
      const [from, to, verdict] = span;
      const [before, after] = [each.before, each.after].map((stream) => mean(stream.slice(from, to)));
      return { words: textOf(row, span), verdict, comment: span[3], before, after, change: after - before };
    });
}

// Only criticised tokens have colour: the stronger, the likelier the model is to write the token.
function heat(app, each, title, stream) {
  const row = rowFor(each);
  const side = make("div", "side");
  const [words, tokens] = completionOf(row, "nothing", 1);
  tokens.forEach((token, index) => {
    if (!spansOf(row, index).length) return;
    token.classList.add("q", `w${Math.max(1, Math.ceil(9 * Math.exp(each[stream][index])))}`);
  });
  side.append(make("h4", "", title), words);
  app.sides.set(side, { row, tokens, phrases: [] });
  return side;
}

function criticised(app, each) {
  const box = make("article", "card");
  const head = make("p", "prompt-line quiet", each.author ? `${each.author}: ${each.feedback || "(a corrected version, or words selected by hand)"}` : "");
  const both = make("div", "columns");
  both.append(heat(app, each, "Before", "before"), heat(app, each, "After", "after"));
  const list = make("ul", "moves");
  movesOf(each).forEach(({ words, verdict, before, after, change }) => {
    const line = make("li");
    const wanted = change * WANTED[verdict];
    const way = wanted > 0 ? "as wanted" : wanted < 0 ? "not as wanted" : "";
    const percent = (value) => `${format(100 * Math.exp(value))} %`;
    line.append(
      make("span", `ph s-${verdict}`, words || "␣"),
      make("span", "num", `${percent(before)} → ${percent(after)}`),
      make("span", `quiet num ${wanted < 0 ? "bad" : ""}`, `log-prob ${format(before)} → ${format(after)}${way && `, ${way}`}`),
    );
    list.append(line);
  });
  box.append(head, both, list);
  return box;
}

function sampled(each) {
  const box = make("article", "card");
  box.append(make("p", "prompt-line quiet", each.prompt.replace(/\s+/g, " ").slice(0, 220)));
  const both = make("div", "columns");
  const side = (title, samples, earlier) => {
    const column = make("div", "side");
    column.append(make("h4", "", title));
    samples.forEach((sample, index) => {
      const text = make("p", "sample");
      text.dir = "auto";
      const old = earlier?.[index];
      if (old) text.append(...drawDiff(diff(old.text, sample.text).filter(([kind]) => kind !== "out")));
      else text.append(sample.text);
      if (!sample.text) text.append(make("span", "quiet", "(nothing)"));
      if (sample.score != null) text.append(make("span", "quiet num", ` score ${format(sample.score)}`));
      column.append(text);
    });
    return column;
  };
  both.append(side("Before", each.before), side("After", each.after, each.before));
  box.append(both);
  return box;
}

export function drawVersions(versions, current, shown) {
  const nav = make("nav", "versions");
  nav.setAttribute("aria-label", "Versions");
  versions
    .filter(({ version }) => version > 0)
    .forEach(({ version }) => {
      const link = make("a", "", version === current ? `${version} (now)` : `${version}`);
      link.href = `#/learned/${version}`;
      link.setAttribute("aria-label", `Version ${version}${version === current ? ", the one in use" : ""}`);
      if (version === shown) link.setAttribute("aria-current", "page");
      nav.append(link);
    });
  return nav;
}

export function drawLearned(app, made) {
  const count = (list, noun) => `${counted(list)} ${noun}${list === 1 ? "" : "s"}`;
  const head = make("h1", "", `What version ${made.version} learned`);
  const on = made.criticised.length ? `on ${count(made.criticised.length, "criticised completion")}` : "with the critic alone, on no critiques";
  const how = make("p", "intro", `${count(made.updates, "update")} ${on}.`);
  const parts = make("ul", "parts");
  (made.parts || []).forEach(({ name, what }) => {
    const item = make("li");
    item.append(make("b", "", PARTS[name] || name), " ", what.replace(/^(Direct|RL): (.)/, (_, __, first) => first.toUpperCase()));
    parts.append(item);
  });
  const warnings = (made.warnings || []).map((words) => make("p", "warning", `⚠ ${words}`));
  const section = (title, note, cards, wide) => {
    if (!cards.length) return [];
    const box = make("div", wide ? "" : "sheets");
    box.append(...cards);
    return [make("h2", "", title), make("p", "intro", note), box];
  };
  return [
    ...[head, how, factsOf(made), ...warnings, parts],
    ...section(
      "The criticised tokens",
      "Only tokens that a critique is about have colour. The darker, the likelier the model writes exactly this token here. Percentages are geometric means over the tokens of a span.",
      made.criticised.map((each) => criticised(app, each)),
    ),
    ...section(
      "The same prompts, sampled again",
      "Left the completions before, right those after; what is new is marked.",
      made.prompts.map(sampled),
    ),
  ];
}

export function nothingLearned(version) {
  const box = make("div", "empty");
  const link = make("a", "button", "Write a critique");
  link.href = "#/write";
  box.append(
    make("h1", "", version ? `Version ${version} is not here` : "Nothing learned yet"),
    make("p", "", "Write a critique of a completion, then press Learn. Here you see what it changed: the criticised words, the same prompts sampled again, and a held-out score."),
    link,
  );
  return [box];
}
