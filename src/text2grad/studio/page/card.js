// One completion with the critique that this person writes about it: what it says, what it landed on, saving, undoing.
// The server holds what is saved; a draft that it does not have yet is also kept in the browser.

import { diff, drawDiff } from "./diff.js";
import { Away, Refused, call } from "./server.js";

const ALIGN_AFTER = 120; // milliseconds without a key
const SAVE_AFTER = 700;
export const SCORES = [
  [-1, "−1", "very bad"],
  [-0.5, "−½", "bad"],
  [0, "0", "neither"],
  [0.5, "+½", "good"],
  [1, "+1", "very good"],
];
export const SEVERITIES = [
  [0.3, "mild"],
  [0.6, "clear"],
  [1, "severe"],
];
const NOTHING = { spans: [], missed: [], omissions: [], rewards: [], pieces: [] };
const place = (span) => `${span.start} ${span.end}`;
const noted = ({ start, end, verdict, severity = null, comment }) => JSON.stringify([start, end, verdict, severity, comment]);
const drafts = (id) => `text2grad-studio/${id}`;

function draftOf(critique) {
  if (!critique || critique.deleted) return { feedback: "", revision: null, score: null, notes: [], spans: null };
  const { feedback, revision = null, score = null, notes = [], by_hand } = critique;
  const spans = by_hand ? tagged(critique, notes).spans.filter((span) => span.note == null) : null;
  return structuredClone({ feedback, revision, score, notes, spans });
}

// Words that were selected by hand come back as spans among the others; each then says of which note it is.
function tagged(found, notes) {
  const of = (span) => notes.findIndex((note) => place(note) === place(span));
  return { ...found, spans: found.spans.map((span) => ({ ...span, note: of(span) < 0 ? null : of(span) })) };
}

// The row of a heat-map, as report/completions.py makes it, of a completion and what its critique landed on.
export function rowOf(completion, found) {
  const { pieces, offsets = [], logprobs, truncated } = completion;
  const touching = (span) =>
    offsets.flatMap(([start, end], index) => (start < end && start < span.end && end > span.start ? [index] : []));
  const spans = found.spans.map((span) => {
    const touched = touching(span);
    const how = span.note != null ? "selected by hand" : `${span.provenance}, confidence ${format(span.confidence)}`;
    const [first, last] = touched.length ? [touched[0], touched.at(-1) + 1] : [0, 0];
    return [first, last, span.verdict, span.comment, how];
  });
  const missed = found.missed.map(({ quote, reason }) => [quote, reason]);
  const empty = offsets.flatMap(([start, end], index) => (start === end ? [index] : []));
  const { omissions, rewards, pieces: critique } = found;
  return { ...{ pieces, empty, logprobs, truncated, spans, missed, omissions, rewards, critique } };
}

export const scaleOf = (row) => Math.max(0.25, ...row.rewards.map(Math.abs));

function icon(name, sign, act) {
  const button = make("button", "plain round", sign);
  button.type = "button";
  button.setAttribute("aria-label", name);
  button.title = name;
  button.addEventListener("click", act);
  return button;
}

// `app` has me(), say(text), needName(), sides, hideTip(), repaint(card), openSpan(card, number).
export function makeCard(app, first, letter) {
  const element = make("article", "card side");
  const card = { element, letter, id: first.id, completion: first, draft: null, found: NOTHING };
  let stored = null; // my critique as the server has it
  let seen = null; // where spans were found before they were corrected by hand
  let sent = ""; // the draft that the server has
  let dirty = false;
  let typed = false; // and not yet on its way
  let conflict = null;
  let turns = 0;
  let saving = 0;
  let aligning = 0;
  let chain = Promise.resolve();

  // ---- what it is made of

  const name = `Completion ${letter}`;
  element.setAttribute("aria-label", name);
  const state = make("span", "saved note");
  const head = make("header");
  head.append(make("h3", "", name), state);
  const [words, tokens] = completionOf(rowOf(first, NOTHING), "rewards", 1);
  words.setAttribute("aria-label", `${name}, word by word: arrow keys move, shift selects, type to comment`);
  words.dir = "auto";
  const field = (kind, label, placeholder) => {
    const box = make("div", `field ${kind}`);
    const text = make("textarea");
    text.rows = 2;
    text.placeholder = placeholder;
    text.setAttribute("aria-label", `${label} of completion ${letter}`);
    text.dir = "auto";
    const mirror = make("div", "mirror");
    mirror.setAttribute("aria-hidden", "true");
    mirror.dir = "auto";
    box.append(mirror, text);
    return { box, text, mirror };
  };
  const said = field("critique-field", "Critique", "What is good, what is wrong? Quote words to point at them.");
  const better = field("revision-field", "Corrected version", "The text as it should have been");
  const changes = make("p", "diff");
  changes.setAttribute("aria-label", "What the corrected version changes");
  const list = make("ul", "found");
  list.setAttribute("aria-label", `What the critique of completion ${letter} landed on`);
  const others = make("div", "others");
  const trouble = make("div", "conflict");
  trouble.hidden = true;

  function switches() {
    const box = make("div", "switch");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Answer to completion ${letter}`);
    const add = (label, corrected) => {
      const button = make("button", "tab", label);
      button.type = "button";
      button.addEventListener("click", () => setCorrected(corrected));
      box.append(button);
      return button;
    };
    return [box, add("Critique", false), add("Corrected version", true)];
  }
  const [tabs, tabCritique, tabRevision] = switches();

  function scores() {
    const box = make("div", "scores");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Overall score of completion ${letter}`);
    box.append(make("span", "note", "overall"));
    const buttons = SCORES.map(([value, label, meaning]) => {
      const button = make("button", "score", label);
      button.type = "button";
      button.setAttribute("aria-label", `${label}, ${meaning}`);
      button.title = meaning;
      button.addEventListener("click", () => change((draft) => (draft.score = draft.score === value ? null : value)));
      box.append(button);
      return button;
    });
    return [box, buttons];
  }
  const [scoreBox, scoreButtons] = scores();
  const again = make("button", "small again", "corrected by hand · read again");
  again.type = "button";
  again.title = "Forget the corrections by hand and read the critique again";
  tabs.append(again);
  again.addEventListener("click", () => change((draft) => (draft.spans = null)));
  const foot = make("footer");
  const steps = make("span", "steps");
  steps.append(
    icon(`Undo the last change of the critique of completion ${letter}`, "↶", () => step("undo")),
    icon(`Redo the change of the critique of completion ${letter}`, "↷", () => step("redo")),
    icon(`Delete the critique of completion ${letter}`, "✕", remove),
  );
  foot.append(scoreBox, steps);
  element.append(head, words, tabs, said.box, better.box, changes, trouble, list, foot, others);

  // ---- drawing

  function draw() {
    const { draft } = card;
    const row = rowOf(card.completion, card.found);
    const scale = scaleOf(row);
    app.hideTip();
    tokens.forEach((token, index) => (token.className = kindOf(row, index, "rewards", scale)));
    card.row = row;
    const corrected = draft.revision !== null;
    const phrases = [...drawMirror(row), ...drawFound(row)];
    element.classList.toggle("corrected", corrected);
    tabCritique.setAttribute("aria-pressed", !corrected);
    tabRevision.setAttribute("aria-pressed", corrected);
    if (said.text.value !== draft.feedback) said.text.value = draft.feedback;
    if (better.text.value !== (draft.revision ?? "")) better.text.value = draft.revision ?? "";
    better.mirror.textContent = `${draft.revision ?? ""}\u200b`;
    changes.replaceChildren(...(corrected ? drawDiff(diff(card.completion.text, draft.revision)) : []));
    scoreButtons.forEach((button, index) => button.setAttribute("aria-pressed", draft.score === SCORES[index][0]));
    again.hidden = !draft.spans;
    app.sides.set(element, { row, tokens, phrases });
    app.repaint(card);
  }

  // The critique once more behind the text box, letter over letter, with its phrases marked. What was typed since the
  // server last answered has no marks yet.
  function drawMirror(row) {
    const text = card.draft.feedback;
    const phrases = [];
    const parts = [];
    let position = 0;
    for (const [piece, kind, indices] of row.critique) {
      if (!text.startsWith(piece, position)) break;
      position += piece.length;
      if (!kind) {
        parts.push(piece);
        continue;
      }
      const phrase = make("span", `ph ${kind === "span" ? `s-${row.spans[indices.at(-1)][2]}` : kind}`, piece);
      phrase.dataset.kind = kind;
      phrase.dataset.indices = indices.join(" ");
      phrases.push(phrase);
      parts.push(phrase);
    }
    said.mirror.replaceChildren(...parts, `${text.slice(position)}\u200b`);
    return phrases;
  }

  // What was found, what was not and why, what is left out: one line each.
  function drawFound(row) {
    const held = list.contains(document.activeElement) ? document.activeElement.dataset : null;
    const phrases = [];
    const line = (sign, kind, index, words, note, act) => {
      const item = make("li", `${kind}-line`);
      const chip = make(act ? "button" : "span", `ph chip ${kind === "span" ? `s-${row.spans[index][2]}` : kind}`, words);
      if (act) chip.type = "button";
      else chip.tabIndex = 0;
      Object.assign(chip.dataset, { kind, indices: index });
      if (act) chip.addEventListener("click", act);
      phrases.push(chip);
      item.append(make("span", "sign", sign), chip, make("span", "quiet", note));
      return item;
    };
    const lines = row.spans.map((span, index) => {
      const severity = card.found.spans[index].severity;
      const weight = SEVERITIES.find(([value]) => value >= (severity ?? 2));
      const hand = card.found.spans[index].note != null ? span[3] : "";
      const note = [weight && severity != null ? weight[1] : "", hand].filter(Boolean).join(": ");
      const words = textOf(row, span) || "␣";
      const item = line(SIGNS[span[2]], "span", index, words, note, () => app.openSpan(card, index));
      item.lastChild.previousSibling.setAttribute("aria-label", `${span[2]}: ${words}. Change this span.`);
      return item;
    });
    row.missed.forEach(([quote, reason], index) => lines.push(line("✗", "missed", index, quote, reason)));
    row.omissions.forEach((text, index) => lines.push(line("○", "omission", index, text, "left out")));
    list.replaceChildren(...lines);
    const same = (chip) => held && chip.dataset.kind === held.kind && chip.dataset.indices === held.indices;
    phrases.find(same)?.focus();
    return phrases;
  }

  const isEmptyDraft = ({ feedback, revision, score, notes, spans }) =>
    !feedback.trim() && (revision === null || revision === card.completion.text) && score === null && !notes.length && !spans?.length;

  function drawOthers() {
    const me = app.me();
    const theirs = (card.completion.critiques || []).filter((each) => each.author !== me && !each.deleted);
    const open = others.querySelector("details")?.open;
    others.replaceChildren();
    if (!theirs.length) return;
    const box = make("details");
    box.open = Boolean(open);
    box.append(make("summary", "", theirs.length === 1 ? `What ${theirs[0].author} wrote` : `What ${theirs.length} others wrote`));
    theirs.forEach((critique) => {
      const side = make("div", "side other");
      const row = rowOf(card.completion, { ...NOTHING, ...tagged(critique, critique.notes) });
      const [said, phrases] = critiqueOf(row);
      const score = critique.score == null ? "" : ` · overall ${format(critique.score, true)}`;
      side.append(make("p", "note", `${critique.author}${score}`), said);
      if (critique.revision != null) {
        const changed = make("p", "diff");
        changed.append(...drawDiff(diff(card.completion.text, critique.revision)));
        side.append(changed);
      }
      app.sides.set(side, { row, tokens, phrases });
      box.append(side);
    });
    others.append(box);
  }

  function tell(words, kind = "") {
    state.textContent = words;
    state.className = `saved note ${kind}`;
  }

  // ---- what the words land on

  function alignSoon() {
    clearTimeout(aligning);
    aligning = setTimeout(align, ALIGN_AFTER);
  }

  async function align() {
    turns += 1;
    const turn = turns;
    const { feedback, revision, notes, spans } = card.draft;
    if (!feedback.trim() && revision === null && !notes.length && !spans) {
      card.found = NOTHING;
      return draw();
    }
    const asked = { completion: card.id, feedback, notes, ...(revision !== null && { revision }) };
    try {
      if (spans) await addFresh(asked, turn);
      const got = await call("POST", "/api/align", { ...asked, ...byHand(card.draft) });
      if (turn !== turns) return;
      card.found = tagged(got, notes);
      draw();
    } catch (problem) {
      if (problem instanceof Refused) tell(problem.message, "bad");
    }
  }

  // Spans corrected by hand stay as they are. A phrase written since then is looked for, and joins them.
  async function addFresh(asked, turn) {
    const got = await call("POST", "/api/align", asked);
    if (turn !== turns || !card.draft.spans) return;
    const read = tagged(got, asked.notes).spans.filter((span) => span.note == null);
    const fresh = seen ? read.filter((span) => !seen.has(place(span))) : [];
    seen = new Set([...(seen || []), ...read.map(place)]);
    if (fresh.length) card.draft.spans.push(...fresh);
  }

  // Spans that were corrected by hand are sent as they are, and then the notes stand among them.
  function byHand({ notes, spans }) {
    return spans && { spans: [...spans, ...notes] };
  }

  // ---- changing, saving, undoing

  // A step that can be undone: each choice is one, and so is what was typed until a pause.
  function change(mutate, typing = false) {
    if (!app.me()) return app.needName();
    if (typed && !typing) save();
    mutate(card.draft);
    dirty = true;
    keep();
    tell(conflict ? "not saved: choose a version" : "…");
    draw();
    alignSoon();
    clearTimeout(saving);
    typed = typing;
    if (typing) saving = setTimeout(save, SAVE_AFTER);
    else save();
  }

  function keep() {
    try {
      localStorage.setItem(drafts(card.id), JSON.stringify({ draft: card.draft, base: stored?.version ?? null, me: app.me() }));
    } catch {
      // A full or forbidden store: the draft is still on the page, and leaving it warns.
    }
  }

  function save() {
    clearTimeout(saving);
    typed = false;
    const draft = structuredClone(card.draft);
    return (chain = chain.then(() => saveNow(draft)));
  }

  async function saveNow(draft) {
    const text = JSON.stringify(draft);
    if (conflict || text === sent) return;
    tell("saving…");
    try {
      const mine = await send(draft);
      if (mine) stored = mine;
      sent = text;
      dirty = JSON.stringify(card.draft) !== sent;
      if (dirty) return keep();
      localStorage.removeItem(drafts(card.id));
      tell(stored && !stored.deleted ? "saved" : "");
    } catch (problem) {
      if (problem instanceof Away) tell("not saved yet: kept in this browser", "bad");
      else if (problem.body?.current) clash(problem.body.current);
      else tell(`not saved: ${problem.message}`, "bad");
    }
  }

  async function send(draft) {
    const { feedback, revision, score, notes } = draft;
    if (!isEmptyDraft(draft))
      return call("PUT", "/api/critiques", {
        ...{ completion: card.id, feedback, score, notes, base: stored?.version ?? null },
        ...(revision !== null && { revision }),
        ...byHand(draft),
      });
    return stored && !stored.deleted ? call("DELETE", `/api/critiques/${stored.id}`, { base: stored.version }) : null;
  }

  function adopt(critique) {
    stored = critique;
    dirty = false;
    seen = null;
    conflict = null;
    trouble.hidden = true;
    if (card.draft) localStorage.removeItem(drafts(card.id)); // A new card has yet to look whether a draft is kept.
    card.draft = draftOf(critique);
    sent = JSON.stringify(card.draft);
    typed = false;
    clearTimeout(saving);
    tell(critique && !critique.deleted ? (critique.learned ? "saved · learned" : "saved") : "");
    card.found = critique && !critique.deleted ? tagged({ ...NOTHING, ...critique }, critique.notes) : NOTHING;
    draw();
    align();
  }

  function step(way) {
    save();
    chain = chain.then(async () => {
      if (!stored || dirty) return app.say(dirty ? "First this has to be saved." : "There is nothing to undo here.");
      try {
        adopt(await call("POST", `/api/critiques/${stored.id}/${way}`));
        app.say(way === "undo" ? `Undone in completion ${letter}.` : `Done again in completion ${letter}.`);
      } catch (problem) {
        app.say(problem.message);
      }
    });
    return chain;
  }

  function remove() {
    if (isEmptyDraft(card.draft)) return;
    change((draft) => Object.assign(draft, draftOf(null)));
    chain.then(() => app.say(`Deleted the critique of completion ${letter}. Ctrl+Z brings it back.`));
  }

  function setCorrected(corrected) {
    if (corrected === (card.draft.revision !== null)) return;
    change((draft) => (draft.revision = corrected ? card.completion.text : null));
    (corrected ? better : said).text.focus();
  }

  // ---- somebody, or another window, saved first

  function clash(current) {
    conflict = { current };
    tell("not saved: choose a version", "bad");
    const theirs = draftOf(current);
    const show = (title, draft) => {
      const box = make("div");
      const extras = [
        draft.score === null ? "" : `overall ${format(draft.score, true)}`,
        draft.notes.length ? `${draft.notes.length} selected` : "",
        draft.revision === null ? "" : "a corrected version",
      ].filter(Boolean);
      box.append(make("h4", "", title), make("p", "said", draft.feedback || draft.revision || "(no words)"));
      if (extras.length) box.append(make("p", "note", extras.join(" · ")));
      return box;
    };
    const both = make("div", "columns");
    both.append(show("Yours, not saved", card.draft), show("Saved in another window", theirs));
    const buttons = make("p", "buttons");
    const add = (label, act) => {
      const button = make("button", "small", label);
      button.type = "button";
      button.addEventListener("click", act);
      buttons.append(button);
    };
    const settle = (mutate) => {
      stored = current || null;
      conflict = null;
      trouble.hidden = true;
      sent = "";
      change(mutate);
      said.text.focus();
    };
    add("Keep mine", () => settle(() => {}));
    add("Take the saved one", () => adopt(current));
    add("Keep both", () => keepBoth(theirs, settle));
    trouble.replaceChildren(make("p", "", "This critique was changed in another window. Which one should stay?"), both, buttons);
    trouble.setAttribute("role", "alert");
    trouble.hidden = false;
  }

  // Words and selections of both. Of what there can be only one of, the one there is; where both have one, the person says.
  function keepBoth(theirs, settle) {
    const text = card.completion.text;
    const has = { score: (one) => one.score !== null, revision: ({ revision }) => revision !== null && revision !== text, spans: (one) => Boolean(one.spans) };
    const differ = Object.keys(has).filter(
      (name) => has[name](card.draft) && has[name](theirs) && JSON.stringify(card.draft[name]) !== JSON.stringify(theirs[name]),
    );
    const merge = async (chosen) => {
      const from = (name) => (chosen[name] ?? (has[name](card.draft) ? "mine" : "theirs")) === "mine";
      const mine = structuredClone(card.draft);
      const oneByHand = has.spans(mine) !== has.spans(theirs) && (has.spans(mine) ? mine : theirs);
      const read = oneByHand ? await readAlone(oneByHand) : null;
      settle((draft) => {
        const [a, b] = [theirs.feedback, mine.feedback];
        draft.feedback = a.includes(b) ? a : b.includes(a) ? b : `${a}\n${b}`;
        const same = new Set(theirs.notes.map(noted));
        draft.notes = [...theirs.notes, ...mine.notes.filter((note) => !same.has(noted(note)))];
        Object.keys(has).forEach((name) => (draft[name] = (from(name) ? mine : theirs)[name]));
        seen = read;
      });
    };
    if (differ.length) askWhich(theirs, differ, merge);
    else merge({});
  }

  // Where the phrases of one critique are found: corrections by hand were made of these, so the other's phrases are new.
  async function readAlone({ feedback, notes, revision }) {
    try {
      const got = await call("POST", "/api/align", { completion: card.id, feedback, notes, ...(revision !== null && { revision }) });
      return new Set(tagged(got, notes).spans.filter((span) => span.note == null).map(place));
    } catch {
      return null;
    }
  }

  function askWhich(theirs, differ, merge) {
    const points = Array.from(card.completion.text);
    const told = {
      score: ({ score }) => `overall ${format(score, true)}`,
      revision: ({ revision }) => revision,
      spans: ({ spans }) => spans.map((span) => `${SIGNS[span.verdict]} ${points.slice(span.start, span.end).join("")}`).join(", ") || "no spans",
    };
    const titles = { score: "Overall score", revision: "Corrected version", spans: "Spans corrected by hand" };
    const form = make("form", "which");
    differ.forEach((name) => {
      const box = make("fieldset");
      box.append(make("legend", "", titles[name]));
      [["mine", "mine", card.draft], ["theirs", "the saved one", theirs]].forEach(([value, who, draft]) => {
        const label = make("label");
        const choice = Object.assign(make("input"), { type: "radio", name, value, required: true });
        label.append(choice, make("span", "", `${who}: ${told[name](draft)}`));
        box.append(label);
      });
      form.append(box);
    });
    form.append(Object.assign(make("button", "small primary", "Keep these"), { type: "submit" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      merge(Object.fromEntries(new FormData(form)));
    });
    trouble.replaceChildren(make("p", "", "The words of both are kept. Here both windows have one, and there can be only one:"), form);
    form.querySelector("input").focus();
  }

  // ---- spans by hand

  card.spanAt = (number) => card.found.spans[number];
  card.addNote = (note, typing) => {
    change((draft) => draft.notes.push(note), typing);
    return { note: card.draft.notes.length - 1 };
  };
  // What a place to edit stands for: a note, or a span that was corrected by hand.
  card.get = (target) => (target.note != null ? card.draft.notes[target.note] : card.draft.spans?.[target.span]);
  // A span that was read out of the words becomes one by hand when it is changed.
  card.grasp = (number) => {
    const span = card.found.spans[number];
    if (span.note != null) return { note: span.note };
    const read = card.found.spans.filter((each) => each.note == null);
    if (!card.draft.spans) {
      seen = new Set(read.map(place));
      card.draft.spans = structuredClone(read);
    }
    return { span: read.indexOf(span) };
  };
  card.edit = (target, patch, typing) => {
    change(() => Object.assign(card.get(target), patch), typing);
    const shown = card.found.spans.find((span) =>
      target.note != null ? span.note === target.note : span.note == null && read(span) === target.span,
    );
    if (shown) Object.assign(shown, patch);
    draw();
  };
  const read = (span) => card.found.spans.filter((each) => each.note == null).indexOf(span);
  card.drop = (target) =>
    change((draft) => (target.note != null ? draft.notes.splice(target.note, 1) : draft.spans.splice(target.span, 1)));

  // ---- keeping up with the server

  card.update = (completion) => {
    card.completion = completion;
    const mine = (completion.critiques || []).find((each) => each.author === app.me());
    const newer = (mine?.version ?? null) !== (stored?.version ?? null) || mine?.deleted !== stored?.deleted;
    if (!card.draft || (!dirty && newer && !conflict)) adopt(mine || (stored?.deleted ? stored : null));
    drawOthers();
  };
  card.restore = () => {
    let kept = null;
    try {
      kept = JSON.parse(localStorage.getItem(drafts(card.id)));
    } catch {
      return;
    }
    if (!kept || kept.me !== app.me()) return;
    if (JSON.stringify(kept.draft) === sent) return localStorage.removeItem(drafts(card.id)); // It did arrive.
    stored = kept.base === null ? null : { ...stored, version: kept.base };
    change((draft) => Object.assign(draft, kept.draft));
  };
  card.unsaved = () => dirty || Boolean(conflict);
  Object.assign(card, { save, step, tokens, words, setCorrected, change });
  card.focus = () => (card.draft.revision === null ? said : better).text.focus();
  card.isCorrected = () => card.draft.revision !== null;

  // ---- typing and pointing

  said.text.addEventListener("input", () => change((draft) => (draft.feedback = said.text.value), true));
  better.text.addEventListener("input", () => change((draft) => (draft.revision = better.text.value), true));
  // The marked phrases lie behind the text box; pointing at one, or the caret in it, lights up its tokens.
  said.text.addEventListener("pointermove", (event) => {
    const phrase = document.elementsFromPoint(event.clientX, event.clientY).find((each) => each.matches?.(".mirror .ph"));
    if (phrase) app.showTip(phrase);
    else app.hideTip();
  });
  said.text.addEventListener("pointerleave", () => app.hideTip());
  card.update(first);
  card.restore();
  return card;
}
