// What the report and the studio share: making elements, writing numbers, the tooltip, the switch for dark and light,
// completions as heat-maps, and critiques whose phrases are linked to the tokens that they are about.
// Text reaches the page through textContent alone.
//
// A row is { pieces, empty, spans, missed, omissions, critique, rewards, … }, as report/completions.py makes it.
"use strict";

const at = (id) => document.getElementById(id);
const tip = at("tip");
const NARROW = 640; // As in the style sheet: there the tooltip stands at the foot of the screen.

function make(tag, kind, text) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

function format(value, sign) {
  if (value === undefined) return "–";
  const size = Math.abs(value);
  const text = size === 0 ? "0" : size.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.0995 ? 2 : 3);
  return (value < 0 ? "−" : sign && value > 0 ? "+" : "") + text;
}

const counted = (count) => count.toLocaleString("en");

function pairsOf(pairs) {
  const box = make("dl");
  pairs.forEach(([name, value]) => box.append(make("dt", "", name), make("dd", "num", value)));
  return box;
}

function moveTip(left, top) {
  const wide = innerWidth >= NARROW;
  tip.style.left = wide ? `${left}px` : "";
  tip.style.top = wide ? `${top}px` : "";
}

// Light and dark: the system's choice until the button is pressed.
{
  const root = document.documentElement;
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const say = () => at("theme").setAttribute("aria-pressed", isDark());
  at("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    say();
  });
  say();
}

// ---- what a row says about its tokens

const SIGNS = { good: "+", poor: "−", neutral: "·" };

function valueOf(row, mode, index) {
  if (mode !== "change") return row[mode] && row[mode][index];
  return row.before && row.after ? row.after[index] - row.before[index] : undefined;
}

const isLast = (row, index) => index === row.pieces.length - 1;
const isEmpty = (row, index) => row.empty.includes(index);
const textOf = (row, span) => row.pieces.slice(span[0], span[1]).join("").trim();
const lengthOf = (row, number) => row.spans[number][1] - row.spans[number][0];

function spansOf(row, index) {
  if (!row.spans || isEmpty(row, index)) return [];
  return row.spans.flatMap((span, number) => (span[0] <= index && index < span[1] ? [number] : []));
}

function shownAs(row, index) {
  const piece = row.pieces[index];
  if (piece) return /^\n+$/.test(piece) ? piece.replace(/\n/g, "↵\n") : piece;
  if (!isEmpty(row, index)) return "·";
  return isLast(row, index) ? "end" : "◦";
}

function nameOf(row, index) {
  const piece = row.pieces[index];
  if (piece) return `“${piece.replace(/\n/g, "↵")}”`;
  if (isEmpty(row, index)) return isLast(row, index) ? "the end, where the model decided to stop" : "a special token";
  const before = row.pieces.slice(0, index).filter(Boolean).pop() || "";
  return `more bytes of “${[...before].pop() || ""}”`;
}

// ---- one completion with its critique

function kindOf(row, index, mode, scale) {
  const kinds = ["t"];
  // Of several spans that cover a token the shortest is underlined: it is more specific. Not one that was overruled.
  const counted = spansOf(row, index).filter((number) => !row.spans[number][5]);
  const nearest = counted.sort((a, b) => lengthOf(row, a) - lengthOf(row, b))[0];
  if (nearest !== undefined) kinds.push(`s-${row.spans[nearest][2]}`);
  if (!row.pieces[index]) kinds.push("bare");
  if (!row.pieces[index] && !isEmpty(row, index)) kinds.push("byte");
  if (isLast(row, index) && row.omissions && row.omissions.length) kinds.push("lacks");
  const value = valueOf(row, mode, index);
  const weight = Math.min(9, Math.ceil((9 * Math.abs(value)) / scale));
  if (value) kinds.push(value > 0 ? "p" : "n", `w${weight}`);
  return kinds.join(" ");
}

function completionOf(row, mode, scale) {
  const box = make("div", "completion");
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Completion, token by token; the arrow keys move");
  const tokens = row.pieces.map((_, index) => {
    const token = make("span", kindOf(row, index, mode, scale), shownAs(row, index));
    token.dataset.index = index;
    token.tabIndex = index ? -1 : 0;
    return token;
  });
  box.append(...tokens);
  if (!tokens.length) box.append(make("span", "quiet", "(nothing)"));
  if (row.truncated) box.append(make("span", "quiet", " cut off at the length limit"));
  return [box, tokens];
}

function critiqueOf(row) {
  const box = make("div", "critique");
  const phrases = [];
  if (!row.critique) {
    box.append(make("p", "unscored", "Not scored: there is no critique, so this completion was not trained on."));
    return [box, phrases];
  }
  const add = (parent, text, kind, indices) => {
    const verdict = kind === "span" ? `s-${row.spans[indices[indices.length - 1]][2]}` : kind;
    const phrase = make("span", `ph ${verdict}`, text);
    phrase.dataset.kind = kind;
    phrase.dataset.indices = indices.join(" ");
    phrase.tabIndex = 0;
    phrases.push(phrase);
    parent.append(phrase);
  };
  const words = make("p", "said");
  const linked = new Set();
  row.critique.forEach(([text, kind, indices]) => {
    if (!kind) return words.append(text);
    indices.forEach((index) => linked.add(kind + index));
    add(words, text, kind, indices);
  });
  box.append(words);
  const rest = restOf(row, linked, add);
  if (rest.children.length) box.append(rest);
  return [box, phrases];
}

// Spans whose words the critique does not hold, quotes that were found nowhere, and what is left out.
function restOf(row, linked, add) {
  const rest = make("ul", "rest");
  const item = (sign, name, text, kind, index, note) => {
    const line = make("li");
    line.append(make("span", "sign", sign), make("span", "quiet", name));
    add(line, text, kind, [index]);
    if (note) line.append(make("span", "quiet", ` ${note}`));
    rest.append(line);
  };
  row.spans.forEach((span, index) => {
    if (linked.has(`span${index}`)) return;
    item(SIGNS[span[2]], span[2], textOf(row, span) || "␣", "span", index, span[3]);
  });
  row.missed.forEach(([quote, reason], index) => item("✗", "missed", quote, "missed", index, reason));
  row.omissions.forEach((text, index) => item("○", "left out", text, "omission", index));
  return rest;
}

// ---- what a token or a phrase says of itself

function causeOf(kind, strong, text, small) {
  const line = make("p", `cause ${kind}`);
  line.append(make("strong", "", strong), " ", text);
  if (small) line.append(make("small", "", small));
  return line;
}

const spanCause = (span) =>
  causeOf(`s-${span[2]}`, `${SIGNS[span[2]]} ${span[2]}`, span[3] || "(no comment)", span[4]);

function tokenTip(row, index) {
  const numbers = [
    ["reward", row.rewards && format(row.rewards[index], true)],
    ["advantage", row.advantages && format(row.advantages[index], true)],
    ["log-prob", row.logprobs && format(row.logprobs[index])],
    ["log-prob before", row.before && format(row.before[index])],
    ["log-prob after", row.after && format(row.after[index])],
    ["change", row.before && row.after && format(valueOf(row, "change", index), true)],
  ];
  return [
    make("p", "tip-title", nameOf(row, index)),
    pairsOf(numbers.filter(([, value]) => value !== undefined)),
    ...spansOf(row, index).map((number) => spanCause(row.spans[number])),
    ...(isLast(row, index) ? row.omissions || [] : []).map((text) => causeOf("omission", "○ left out", text)),
  ];
}

function phraseTip(row, kind, indices) {
  if (kind === "span")
    return indices.flatMap((number) => [
      make("p", "tip-title", `“${textOf(row, row.spans[number])}”`),
      spanCause(row.spans[number]),
    ]);
  if (kind === "missed") {
    const [quote, reason] = row.missed[indices[0]];
    return [make("p", "tip-title", `“${quote}”`), make("p", "", `✗ missed: ${reason}`)];
  }
  const whose = "Counts at the last token, where the model decided to stop.";
  return [make("p", "tip-title", "Left out"), make("p", "", whose)];
}

// ---- tokens and phrases light up together

// In `list`: each `.side` holds a completion and its critique, and `sides` knows its { row, tokens, phrases }.
// `busy` says of an element that pointing at it should show nothing now.
function linkPhrases(list, sides, busy = () => false) {
  let lit = [];

  function show(element) {
    hide();
    if (busy(element)) return;
    const { row, tokens, phrases } = sides.get(element.closest(".side"));
    const { index, kind, indices } = element.dataset;
    const numbers = indices === undefined ? [] : indices.split(" ").map(Number);
    const spans = index !== undefined ? spansOf(row, Number(index)) : kind === "span" ? numbers : [];
    const ends = index !== undefined ? isLast(row, Number(index)) : kind === "omission";
    tip.replaceChildren(...(index !== undefined ? tokenTip(row, Number(index)) : phraseTip(row, kind, numbers)));
    const related = (phrase) =>
      phrase.dataset.kind === "span"
        ? phrase.dataset.indices.split(" ").some((number) => spans.includes(Number(number)))
        : phrase.dataset.kind === "omission" && ends;
    const touched = (token, place) =>
      spansOf(row, place).some((number) => spans.includes(number)) || (ends && isLast(row, place));
    lit = [element, ...tokens.filter(touched), ...phrases.filter(related)];
    lit.forEach((each) => each.classList.add("on"));
    element.classList.add("here");
    element.setAttribute("aria-describedby", "tip");
    tip.hidden = false;
    place(element);
  }

  function place(element) {
    const box = element.getClientRects()[0];
    const below = box.bottom + 8;
    const above = box.top - tip.offsetHeight - 8;
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    moveTip(left, below + tip.offsetHeight < innerHeight || above < 0 ? below : above);
  }

  function hide() {
    lit.forEach((each) => {
      each.classList.remove("on", "here");
      each.removeAttribute("aria-describedby");
    });
    lit = [];
    tip.hidden = true;
  }

  function walk(event) {
    const token = event.target.closest(".completion .t");
    if (!token) return;
    const { tokens } = sides.get(token.closest(".side"));
    const here = Number(token.dataset.index);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined || !tokens[to]) return;
    event.preventDefault();
    token.tabIndex = -1;
    tokens[to].tabIndex = 0;
    tokens[to].focus();
  }

  const told = (target) => target instanceof Element && target.closest(".side .t, .side .ph");
  list.addEventListener("pointerover", (event) => told(event.target) && show(told(event.target)));
  list.addEventListener("pointerout", (event) => event.pointerType === "mouse" && !told(event.relatedTarget) && hide());
  list.addEventListener("focusin", (event) => told(event.target) && show(told(event.target)));
  list.addEventListener("focusout", hide);
  // A tap moves the focus in Chromium; other browsers need not do so.
  list.addEventListener("click", (event) => (told(event.target) ? show(told(event.target)) : hide()));
  list.addEventListener("keydown", walk);
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", () => lit.length && place(lit[0]), { passive: true });
  return { show, hide };
}
