// Completions as heat-maps, each with its critique. Cards are made as they are asked for.

function showCompletions(list, data) {
  const MODES = { rewards: "reward", advantages: "advantage", change: "change of log-prob" };
  const SIGNS = { good: "+", poor: "−", neutral: "·" };
  const AT_ONCE = 12;
  const sides = new WeakMap(); // element of a completion and its critique → { row, tokens, phrases }
  const haystacks = new WeakMap();
  let shown = []; // what the filter leaves, in order: each { rows }, one row or (before, after)
  let drawn = 0;
  let lit = [];

  // ---- what a row says about its tokens

  function valueOf(row, mode, index) {
    if (mode !== "change") return row[mode] && row[mode][index];
    return row.before && row.after ? row.after[index] - row.before[index] : undefined;
  }

  function largestChange(row) {
    if (!row.before || !row.after) return undefined;
    const changes = row.before.map((before, index) => row.after[index] - before);
    return changes.reduce((best, change) => (Math.abs(change) > Math.abs(best) ? change : best), 0);
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

  function kindOf(row, index) {
    const kinds = ["t"];
    // Of several spans that cover a token the shortest is underlined: it is more specific. Not one that was overruled.
    const counted = spansOf(row, index).filter((number) => !row.spans[number][5]);
    const nearest = counted.sort((a, b) => lengthOf(row, a) - lengthOf(row, b))[0];
    if (nearest !== undefined) kinds.push(`s-${row.spans[nearest][2]}`);
    if (!row.pieces[index]) kinds.push("bare");
    if (!row.pieces[index] && !isEmpty(row, index)) kinds.push("byte");
    if (isLast(row, index) && row.omissions && row.omissions.length) kinds.push("lacks");
    const mode = at("mode").value;
    const value = valueOf(row, mode, index);
    const weight = Math.min(9, Math.ceil((9 * Math.abs(value)) / data.scales[mode]));
    if (value) kinds.push(value > 0 ? "p" : "n", `w${weight}`);
    return kinds.join(" ");
  }

  function completion(row) {
    const box = make("div", "completion");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Completion, token by token; the arrow keys move");
    const tokens = row.pieces.map((_, index) => {
      const token = make("span", kindOf(row, index), shownAs(row, index));
      token.dataset.index = index;
      token.tabIndex = index ? -1 : 0;
      return token;
    });
    box.append(...tokens);
    if (!tokens.length) box.append(make("span", "quiet", "(nothing)"));
    if (row.truncated) box.append(make("span", "quiet", " cut off at the length limit"));
    return [box, tokens];
  }

  function critique(row) {
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
    summary.append(make("span", "quiet", "prompt"), " ", text.replace(/\s+/g, " ").slice(0, 200));
    box.append(summary, make("p", "", text));
    return box;
  }

  function headOf(row, after) {
    if (after) {
      if (!row.critique || !after.critique) return [];
      const change = after.score === row.score ? "no change" : format(after.score - row.score, true);
      return [`score ${format(row.score)} → ${format(after.score)}`, change];
    }
    const change = largestChange(row);
    const facts = [`update ${row.update}`, row.critique ? `score ${format(row.score)}` : "not scored"];
    return change ? [...facts, `largest log-prob change ${format(change, true)}`] : facts;
  }

  function card({ rows: [row, after] }) {
    const box = make("article", "card");
    const head = make("header");
    head.append(make("h3", "", row.id), ...headOf(row, after).map((text) => make("span", "num", text)));
    box.append(head, promptOf(row));
    if (after) {
      const both = make("div", "columns");
      const before = row.update ? `Before: update ${row.update}` : "Before training";
      both.append(side(row, before), side(after, `After ${counted(after.update)} update${after.update === 1 ? "" : "s"}`));
      box.append(both);
    } else {
      const one = side(row, "");
      one.classList.add("beside");
      box.append(one);
    }
    return box;
  }

  // ---- choosing and paging

  function haystack(entry) {
    if (!haystacks.has(entry)) {
      const texts = entry.rows.flatMap((row) => [
        ...[row.id, data.prompts[row.prompt], row.pieces.join("")],
        ...(row.critique ? [row.critique.map((piece) => piece[0]).join("")] : []),
        ...(row.spans || []).map((span) => span[3]),
      ]);
      haystacks.set(entry, texts.join("\n").toLowerCase());
    }
    return haystacks.get(entry);
  }

  const scored = (entry) => entry.rows.every((row) => row.critique);
  const finalScore = (entry) => entry.rows[entry.rows.length - 1].score;
  function changed({ rows: [row, after] }) {
    if (!after) return Math.abs(largestChange(row) || 0);
    return row.critique && after.critique ? Math.abs(after.score - row.score) : 0;
  }
  const ORDERS = {
    all: (entries) => entries,
    changes: (entries) => entries.sort((a, b) => changed(b) - changed(a)),
    worst: (entries) =>
      entries.filter((entry) => finalScore(entry) !== undefined).sort((a, b) => finalScore(a) - finalScore(b)),
    unscored: (entries) => entries.filter((entry) => !scored(entry)),
  };

  const runNow = () => data.runs[at("run").value || 0];
  function entriesOf(run, view) {
    run.entries = run.entries || {
      pairs: run.pairs.map((rows) => ({ rows })),
      during: run.during.map((row) => ({ rows: [row] })),
    };
    return run.entries[view];
  }

  function choose() {
    const run = runNow();
    const mode = at("mode").value;
    const view = at("view").value;
    const query = at("query").value.trim().toLowerCase();
    const all = entriesOf(run, view);
    shown = ORDERS[at("order").value](all.filter((entry) => !query || haystack(entry).includes(query)));
    at("count").textContent = sayCount(run, view, all.length, mode);
    hide();
    list.replaceChildren();
    drawn = 0;
    more();
    at("scale-low").textContent = format(-data.scales[mode]);
    at("scale-high").textContent = format(data.scales[mode], true);
    at("scale-name").textContent = MODES[mode];
  }

  function sayCount(run, view, here, mode) {
    const [noun, total] = view === "pairs" ? ["held-out prompts", run.pairsTotal] : ["completions", run.duringTotal];
    const some = `${counted(shown.length)} of ${counted(here)} ${noun} match.`;
    let said = shown.length === here ? `${counted(here)} ${noun}.` : some;
    if (total > here) {
      const how = view === "pairs" ? "evenly over the prompts" : "evenly over training";
      said += ` Showing ${counted(here)} of ${counted(total)}: ${how}.`;
    }
    const coloured = shown.some((entry) => entry.rows.some((row) => valueOf(row, mode, 0) !== undefined));
    if (shown.length && !coloured) said += ` The run has no ${MODES[mode]} for them, so they have no colour.`;
    return said;
  }

  function more() {
    const next = shown.slice(drawn, drawn + AT_ONCE);
    list.append(...next.map(card));
    drawn += next.length;
    const left = shown.length - drawn;
    at("more").hidden = !left;
    at("more").textContent = `Show ${Math.min(AT_ONCE, left)} more of ${counted(left)}`;
    const nothing = "Nothing matches. Choose “all, in order” or search for other words.";
    if (!shown.length) list.append(make("p", "intro", nothing));
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

  function show(element) {
    hide();
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

  // ---- controls

  function settle() {
    const run = runNow();
    const [pairs, during] = at("view").options;
    pairs.disabled = !run.pairs.length;
    during.disabled = !run.during.length;
    if (at("view").selectedOptions[0].disabled) at("view").value = pairs.disabled ? "during" : "pairs";
    choose();
  }

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
    list.children[next].querySelector("summary").focus({ preventScroll: true });
  });
  settle();
}

if (at("list")) showCompletions(at("list"), JSON.parse(at("data").textContent));
