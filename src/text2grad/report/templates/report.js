// Draws the completions. Text reaches the page through textContent alone; cards are made as they are asked for.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const root = document.documentElement;

  // Light and dark: the system's choice until the button is pressed.
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  at("theme").setAttribute("aria-pressed", isDark());
  at("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    at("theme").setAttribute("aria-pressed", isDark());
  });

  // On paper nothing can be opened.
  const closed = document.querySelectorAll(".run:not([open])");
  addEventListener("beforeprint", () => closed.forEach((run) => (run.open = true)));
  addEventListener("afterprint", () => closed.forEach((run) => (run.open = false)));

  const tip = at("tip");
  readCharts();

  const list = at("list");
  if (!list) return;
  const data = JSON.parse(at("data").textContent);
  const MODES = { rewards: "reward", advantages: "advantage", change: "change of log-prob" };
  const AT_ONCE = 12;
  const sides = new WeakMap(); // element of a completion and its critique → { row, tokens, phrases }
  let shown = []; // what the filter leaves, in order
  let drawn = 0;

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

  // ---- the numbers of a chart, at the update that is pointed at: read from its table

  function readCharts() {
    document.querySelectorAll("svg[data-last]").forEach((svg) => {
      const table = svg.closest("figure").querySelector("table");
      const cells = (row) => [...row.children].map((cell) => cell.textContent);
      const names = cells(table.tHead.rows[0]);
      const rows = [...table.tBodies[0].rows].map(cells);
      const { left, right, last, foot } = Object.fromEntries(Object.entries(svg.dataset).map(([key, value]) => [key, Number(value)]));
      const hair = document.createElementNS("http://www.w3.org/2000/svg", "path");
      hair.setAttribute("class", "hair");
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
        const update = ((x - left) / (right - left)) * last;
        const row = rows.reduce((best, each) => (Math.abs(each[0] - update) < Math.abs(best[0] - update) ? each : best));
        hair.setAttribute("d", `M${left + ((right - left) * row[0]) / last} 8V${foot}`);
        svg.append(hair);
        const title = make("p", "tip-title", `update ${row[0]}`);
        tip.replaceChildren(title, lines(names.slice(1).map((name, index) => [name, row[index + 1]])));
        tip.hidden = false;
        const where = hair.getBoundingClientRect();
        const beside = where.right + 14 + tip.offsetWidth < innerWidth ? where.right + 14 : where.left - 14 - tip.offsetWidth;
        if (innerWidth >= 640) Object.assign(tip.style, { left: `${beside}px`, top: `${Math.max(8, where.top)}px` });
        else tip.style.left = tip.style.top = "";
      });
      svg.addEventListener("pointerleave", () => {
        hair.remove();
        tip.hidden = true;
      });
    });
  }

  // ---- the numbers of a token

  function valueOf(row, mode, index) {
    if (mode !== "change") return row[mode] && row[mode][index];
    return row.before && row.after ? row.after[index] - row.before[index] : undefined;
  }

  function largestChange(row) {
    if (!row.before || !row.after) return undefined;
    let largest = 0;
    row.before.forEach((before, index) => {
      const change = row.after[index] - before;
      if (Math.abs(change) > Math.abs(largest)) largest = change;
    });
    return largest;
  }

  function paint(row, token, index) {
    const mode = at("mode").value;
    const value = valueOf(row, mode, index);
    const weight = value ? Math.min(9, Math.ceil((9 * Math.abs(value)) / data.scales[mode])) : 0;
    const tone = weight ? (value > 0 ? ` p w${weight}` : ` n w${weight}`) : "";
    token.className = token.dataset.base + tone;
  }

  // ---- one completion with its critique

  function spansOf(row, index) {
    if (!row.spans || row.empty.includes(index)) return [];
    return row.spans.flatMap((span, number) => (span[0] <= index && index < span[1] ? [number] : []));
  }

  function tokenText(row, index) {
    const piece = row.pieces[index];
    if (piece) return /^\n+$/.test(piece) ? piece.replace(/\n/g, "↵\n") : piece;
    if (!row.empty.includes(index)) return "·";
    return index === row.pieces.length - 1 ? "end" : "◦";
  }

  function tokenName(row, index) {
    const piece = row.pieces[index];
    if (piece) return `“${piece.replace(/\n/g, "↵")}”`;
    if (row.empty.includes(index)) return index === row.pieces.length - 1 ? "the end: the decision to stop" : "a special token";
    const before = row.pieces.slice(0, index).filter(Boolean).pop() || "";
    return `more bytes of “${[...before].pop() || ""}”`;
  }

  function completion(row) {
    const box = make("div", "completion");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Completion, token by token; the arrow keys move");
    const tokens = row.pieces.map((piece, index) => {
      const spans = spansOf(row, index);
      // Of several spans that cover a token, the shortest is the one that is underlined: it says something more particular.
      const nearest = spans.reduce((best, n) => (best < 0 || length(row, n) < length(row, best) ? n : best), -1);
      const token = make("span", "", tokenText(row, index));
      const last = index === row.pieces.length - 1;
      token.dataset.base =
        "t" + (nearest < 0 ? "" : ` s-${row.spans[nearest][2]}`) + (piece ? "" : row.empty.includes(index) ? " bare" : " bare byte") + (last && row.omissions && row.omissions.length ? " lacks" : "");
      token.dataset.index = index;
      token.tabIndex = index ? -1 : 0;
      paint(row, token, index);
      return token;
    });
    box.append(...tokens);
    if (!tokens.length) box.append(make("span", "quiet", "(nothing)"));
    if (row.truncated) box.append(make("span", "quiet", " cut off at the length limit"));
    return [box, tokens];
  }

  const length = (row, number) => row.spans[number][1] - row.spans[number][0];

  function phraseOf(text, kind, indices, verdict) {
    const phrase = make("span", `ph ${verdict ? `s-${verdict}` : kind}`, text);
    phrase.dataset.kind = kind;
    phrase.dataset.indices = indices.join(" ");
    phrase.tabIndex = 0;
    return phrase;
  }

  function critique(row) {
    const box = make("div", "critique");
    const phrases = [];
    const add = (parent, ...args) => {
      phrases.push(phraseOf(...args));
      parent.append(phrases[phrases.length - 1]);
    };
    if (!row.critique) {
      box.append(make("p", "unscored", "Not scored: the critic said nothing, so this completion trained nothing."));
      return [box, phrases];
    }
    const words = make("p", "said");
    const linked = new Set();
    row.critique.forEach(([text, kind, indices]) => {
      if (!kind) return words.append(text);
      indices.forEach((index) => linked.add(kind + index));
      add(words, text, kind, indices, kind === "span" ? row.spans[indices[indices.length - 1]][2] : "");
    });
    box.append(words);
    const rest = make("ul", "rest");
    const item = (sign, name) => {
      const line = make("li");
      line.append(make("span", "sign", sign), make("span", "quiet", name));
      rest.append(line);
      return line;
    };
    row.spans.forEach((span, index) => {
      if (linked.has("span" + index)) return;
      const where = row.pieces.slice(span[0], span[1]).join("").trim();
      add(item(span[2] === "poor" ? "−" : span[2] === "good" ? "+" : "·", span[2]), where || "the text", "span", [index], span[2]);
      if (span[3]) rest.lastChild.append(" " + span[3]);
    });
    row.missed.forEach(([quote, reason], index) => {
      const line = item("✗", "missed");
      add(line, quote, "missed", [index], "");
      line.append(make("span", "quiet", ` ${reason}`));
    });
    row.omissions.forEach((text, index) => add(item("○", "left out"), text, "omission", [index], ""));
    if (rest.children.length) box.append(rest);
    return [box, phrases];
  }

  function side(row, title) {
    const element = make("div", "side");
    const [words, tokens] = completion(row);
    const [said, phrases] = critique(row);
    if (title) {
      const head = make("h4", "", title);
      head.append(make("span", "num", row.critique ? `score ${format(row.score)}` : "not scored"));
      element.append(head);
    }
    element.append(words, said);
    sides.set(element, { row, tokens, phrases });
    return element;
  }

  function promptOf(row) {
    const text = data.prompts[row.prompt];
    const box = make("details", "prompt");
    const summary = make("summary");
    const flat = text.replace(/\s+/g, " ");
    summary.append(make("span", "quiet", "prompt"), " ", make("span", "start", flat.slice(0, 200)));
    box.append(summary, make("p", "", text));
    return box;
  }

  function card(entry) {
    const box = make("article", "card");
    const head = make("header");
    const facts = (...texts) => texts.filter(Boolean).forEach((text) => head.append(make("span", "num", text)));
    head.append(make("h3", "", entry.rows[0].id));
    const [row, after] = entry.rows;
    if (after) {
      const known = row.critique && after.critique;
      facts(known && `score ${format(row.score)} → ${format(after.score)}`, known && (after.score === row.score ? "no change" : format(after.score - row.score, true)));
      box.append(head, promptOf(row));
      const both = make("div", "columns");
      both.append(side(row, `Before training${row.update ? ` (update ${row.update})` : ""}`), side(after, `After ${after.update} updates`));
      box.append(both);
    } else {
      const change = largestChange(row);
      facts(`update ${row.update}`, row.critique ? `score ${format(row.score)}` : "not scored", change && `largest log-prob change ${format(change, true)}`);
      box.append(head, promptOf(row));
      const one = side(row, "");
      one.classList.add("beside");
      box.append(one);
    }
    return box;
  }

  // ---- choosing and paging

  const haystacks = new WeakMap();
  function haystack(entry) {
    if (!haystacks.has(entry)) {
      const texts = entry.rows.flatMap((row) => [
        row.id, data.prompts[row.prompt], row.pieces.join(""),
        ...(row.critique || []).map((piece) => piece[0]), ...(row.spans || []).map((span) => span[3]),
      ]);
      haystacks.set(entry, texts.join("\n").toLowerCase());
    }
    return haystacks.get(entry);
  }

  const worst = (entry) => Math.min(...entry.rows.map((row) => (row.critique ? row.score : Infinity)));
  const scored = (entry) => entry.rows.every((row) => row.critique);
  function changed(entry) {
    const [row, after] = entry.rows;
    if (after) return scored(entry) ? Math.abs(after.score - row.score) : 0;
    return Math.abs(largestChange(row) || 0);
  }

  function choose() {
    const run = data.runs[at("run").value || 0];
    const view = at("view").value;
    const order = at("order").value;
    const query = at("query").value.trim().toLowerCase();
    const all = view === "pairs" ? run.pairs.map((rows) => ({ rows })) : run.during.map((row) => ({ rows: [row] }));
    shown = all.filter((entry) => !query || haystack(entry).includes(query));
    if (order === "unscored") shown = shown.filter((entry) => !scored(entry));
    if (order === "worst") shown = shown.filter((entry) => worst(entry) < Infinity).sort((a, b) => worst(a) - worst(b));
    if (order === "changes") shown.sort((a, b) => changed(b) - changed(a));
    const total = view === "pairs" ? run.pairsTotal : run.duringTotal;
    const noun = view === "pairs" ? "held-out prompts" : "completions";
    at("count").textContent =
      (shown.length === all.length ? `${all.length.toLocaleString("en")} ${noun}` : `${shown.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} ${noun} match`) +
      (total > all.length ? `. This page holds ${all.length.toLocaleString("en")} of the run’s ${total.toLocaleString("en")}: chosen evenly, and the worst, most changed and unscored ones.` : ".");
    const mode = at("mode").value;
    const coloured = shown.some((entry) => entry.rows.some((row) => valueOf(row, mode, 0) !== undefined));
    if (shown.length && !coloured) at("count").textContent += ` The run kept no ${MODES[mode]} for them, so they have no colour.`;
    hide();
    list.replaceChildren();
    drawn = 0;
    more();
    const scale = data.scales[mode];
    at("scale-low").textContent = format(-scale);
    at("scale-high").textContent = format(scale, true);
    at("scale-name").textContent = MODES[mode];
  }

  function more() {
    const next = shown.slice(drawn, drawn + AT_ONCE);
    list.append(...next.map(card));
    drawn += next.length;
    at("more").hidden = drawn >= shown.length;
    at("more").textContent = `Show ${Math.min(AT_ONCE, shown.length - drawn)} more of ${(shown.length - drawn).toLocaleString("en")}`;
    if (!shown.length) list.append(make("p", "intro", "Nothing matches. Choose “all, in order”, or search for something else."));
  }

  // ---- what a token or a phrase says of itself

  function lines(pairs) {
    const box = make("dl");
    pairs.forEach(([name, value]) => box.append(make("dt", "", name), make("dd", "num", value)));
    return box;
  }

  function spanLine(span) {
    const line = make("p", `cause s-${span[2]}`);
    const sign = { good: "+ good", poor: "− poor", neutral: "· neutral" }[span[2]];
    line.append(make("strong", "", sign), " ", span[3] || "(no words given)", make("small", "", span[4]));
    return line;
  }

  function tokenTip(row, index) {
    const parts = [make("p", "tip-title", tokenName(row, index))];
    const numbers = [];
    if (row.rewards) numbers.push(["reward", format(row.rewards[index], true)]);
    if (row.advantages) numbers.push(["advantage", format(row.advantages[index], true)]);
    if (row.before) numbers.push(["log-prob before", format(row.before[index])]);
    if (row.after) numbers.push(["log-prob after", format(row.after[index])]);
    if (row.before && row.after) numbers.push(["change", format(valueOf(row, "change", index), true)]);
    if (numbers.length) parts.push(lines(numbers));
    spansOf(row, index).forEach((number) => parts.push(spanLine(row.spans[number])));
    if (index === row.pieces.length - 1 && row.omissions)
      row.omissions.forEach((text) => {
        const line = make("p", "cause omission");
        line.append(make("strong", "", "○ left out"), " ", text);
        parts.push(line);
      });
    return parts;
  }

  function phraseTip(row, kind, indices) {
    if (kind === "span")
      return indices.flatMap((number) => {
        const span = row.spans[number];
        return [make("p", "tip-title", `“${row.pieces.slice(span[0], span[1]).join("").trim()}”`), spanLine(span)];
      });
    if (kind === "missed") {
      const [quote, reason] = row.missed[indices[0]];
      return [make("p", "tip-title", `“${quote}”`), make("p", "", `✗ missed: ${reason}`)];
    }
    return [make("p", "tip-title", "Left out"), make("p", "", "Belongs to the decision to stop: the last token carries it.")];
  }

  let lit = [];
  function show(element) {
    hide();
    const owner = element.closest(".side");
    const { row, tokens, phrases } = sides.get(owner);
    let spans, ends;
    if (element.dataset.index !== undefined) {
      const index = Number(element.dataset.index);
      spans = spansOf(row, index);
      ends = index === row.pieces.length - 1;
      tip.replaceChildren(...tokenTip(row, index));
    } else {
      const indices = element.dataset.indices.split(" ").map(Number);
      spans = element.dataset.kind === "span" ? indices : [];
      ends = element.dataset.kind === "omission";
      tip.replaceChildren(...phraseTip(row, element.dataset.kind, indices));
    }
    const inSpans = (index) => spans.some((n) => row.spans[n][0] <= index && index < row.spans[n][1]);
    lit = [
      element,
      ...tokens.filter((_, index) => inSpans(index) || (ends && index === tokens.length - 1)),
      ...phrases.filter((phrase) =>
        phrase.dataset.kind === "span"
          ? phrase.dataset.indices.split(" ").some((number) => spans.includes(Number(number)))
          : phrase.dataset.kind === "omission" && ends),
    ];
    lit.forEach((each) => each.classList.add("on"));
    element.classList.add("here");
    element.setAttribute("aria-describedby", "tip");
    tip.hidden = false;
    place(element);
  }

  function place(element) {
    tip.style.left = tip.style.top = "";
    if (innerWidth < 640) return; // The style sheet puts it at the foot of the screen.
    const box = element.getClientRects()[0];
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + 8;
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${below + tip.offsetHeight < innerHeight || above < 0 ? below : above}px`;
  }

  function hide() {
    lit.forEach((each) => {
      each.classList.remove("on", "here");
      each.removeAttribute("aria-describedby");
    });
    lit = [];
    tip.hidden = true;
  }

  const told = (target) => target instanceof Element && target.closest(".side .t, .side .ph");
  list.addEventListener("pointerover", (event) => told(event.target) && show(told(event.target)));
  list.addEventListener("pointerout", (event) => event.pointerType === "mouse" && !told(event.relatedTarget) && hide());
  list.addEventListener("focusin", (event) => told(event.target) && show(told(event.target)));
  list.addEventListener("focusout", hide);
  list.addEventListener("click", (event) => (told(event.target) ? show(told(event.target)) : hide()));
  addEventListener("scroll", () => lit.length && place(lit[0]), { passive: true });
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  list.addEventListener("keydown", (event) => {
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
  });

  // ---- controls

  const settle = () => {
    const run = data.runs[at("run").value || 0];
    const [pairs, during] = at("view").options;
    pairs.disabled = !run.pairs.length;
    during.disabled = !run.during.length;
    if (at("view").selectedOptions[0].disabled) at("view").value = pairs.disabled ? "during" : "pairs";
    choose();
  };
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  ["run", "view", "order", "mode"].forEach((id) => at(id).addEventListener("change", settle));
  let waiting = 0;
  at("query").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(choose, 120);
  });
  // A button, not an endless list: what stands below the completions can be reached, and print has an end.
  at("more").addEventListener("click", () => {
    const next = drawn;
    more();
    list.children[next].querySelector(".t, .ph, summary").focus({ preventScroll: true });
    hide();
  });
  settle();
})();
