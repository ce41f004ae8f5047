// Completions as heat-maps, each with its critique. Cards are made as they are asked for.

function showCompletions(list, data) {
  const MODES = { rewards: "reward", advantages: "advantage", change: "change of log-prob" };
  const AT_ONCE = 12;
  const sides = new WeakMap(); // element of a completion and its critique → { row, tokens, phrases }
  const { hide } = linkPhrases(list, sides);
  const haystacks = new WeakMap();
  let shown = []; // what the filter leaves, in order: each { rows }, one row or (before, after)
  let drawn = 0;

  function largestChange(row) {
    if (!row.before || !row.after) return undefined;
    const changes = row.before.map((before, index) => row.after[index] - before);
    return changes.reduce((best, change) => (Math.abs(change) > Math.abs(best) ? change : best), 0);
  }

  // ---- one card

  function side(row, title) {
    const element = make("div", "side");
    const mode = at("mode").value;
    const [words, tokens] = completionOf(row, mode, data.scales[mode]);
    const [said, phrases] = critiqueOf(row);
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

// On paper nothing can be opened.
{
  const closed = document.querySelectorAll(".run:not([open])");
  addEventListener("beforeprint", () => closed.forEach((run) => (run.open = true)));
  addEventListener("afterprint", () => closed.forEach((run) => (run.open = false)));
}
