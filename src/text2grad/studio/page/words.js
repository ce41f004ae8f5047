// Choosing words of a completion, by mouse, finger or keyboard, and saying something about just them; and moving the
// edges of a span. Knows tokens and characters; what is written goes to the card.

import { SEVERITIES } from "./card.js";

const VERDICTS = [
  ["poor", "− poor", "P"],
  ["good", "+ good", "G"],
  ["neutral", "· neutral", "N"],
];
const SIGN_KEYS = { "+": "good", "-": "poor", "−": "poor", ".": "neutral" };
const TOUCH = 640; // As in the style sheets: below it the box stands at the foot of the screen.

function radios(box, name, options, act) {
  return options.map(([value, label, key]) => {
    const option = make("label", `choice c-${value}`);
    const input = make("input");
    Object.assign(input, { type: "radio", name, value });
    input.addEventListener("change", () => act(value));
    option.append(input, make("span", "", label));
    option.title = `Alt+${key}`;
    box.append(option);
    return input;
  });
}

export function makeWords(cardOf) {
  const box = at("note");
  const comment = at("comment");
  let chosen = null; // { card, from, to }: tokens, both inside; `from` stays where it is when shift moves
  let target = null; // what is edited: a note or span of the card, or { found: number } until it is changed
  let draft = null; // of a note that does not exist yet
  let dragging = null;

  // ---- tokens and characters

  const first = () => Math.min(chosen.from, chosen.to);
  const last = () => Math.max(chosen.from, chosen.to);

  function charactersOf(card, from, to) {
    const characters = Array.from(card.completion.text);
    const { offsets } = card.completion;
    let [start, end] = [offsets[from][0], offsets[to][1]];
    while (start < end && /\s/.test(characters[start])) start += 1;
    while (end > start && /\s/.test(characters[end - 1])) end -= 1;
    return start < end ? { start, end } : { start: offsets[from][0], end: offsets[to][1] };
  }

  // The whole word that a token is part of.
  function wordAt(card, index) {
    const { pieces } = card.completion;
    const begins = (place) => /^\s|^$/.test(pieces[place]) || /^[^\p{L}\p{N}]/u.test(pieces[place]) !== /^[^\p{L}\p{N}]/u.test(pieces[place - 1] || "");
    let [from, to] = [index, index];
    while (from > 0 && !begins(from)) from -= 1;
    while (to + 1 < pieces.length && !begins(to + 1)) to += 1;
    return [from, to];
  }

  const isSpecial = (card, index) => {
    const [start, end] = card.completion.offsets[index];
    return start === end;
  };

  function tokenNear(card, x, y) {
    const over = document.elementsFromPoint(x, y).find((each) => each.matches?.(".t") && card.words.contains(each));
    if (over) return Number(over.dataset.index);
    let best = [Infinity, 0];
    card.tokens.forEach((token, index) => {
      for (const each of token.getClientRects()) {
        const dx = Math.max(each.left - x, 0, x - each.right);
        const dy = Math.max(each.top - y, 0, y - each.bottom);
        best = Math.min(best[0], dx + 3 * dy) < best[0] ? [dx + 3 * dy, index] : best;
      }
    });
    return best[1];
  }

  // ---- the chosen words

  function choose(card, from, to) {
    const clamp = (index) => Math.max(0, Math.min(index, card.tokens.length - 1));
    let [a, b] = [clamp(from), clamp(to)];
    while (b > a && isSpecial(card, b)) b -= 1;
    if (isSpecial(card, a) && isSpecial(card, b)) return clear();
    chosen = { card, from: a, to: b };
    paint();
  }

  function clear() {
    chosen?.card.tokens.forEach((token) => token.classList.remove("sel", "sel-first", "sel-last"));
    edges.forEach((edge) => edge.remove());
    chosen = null;
  }

  function paint() {
    document.querySelectorAll(".sel").forEach((token) => token.classList.remove("sel", "sel-first", "sel-last"));
    if (!chosen) return;
    const { card } = chosen;
    const [from, to] = [first(), last()];
    for (let index = from; index <= to; index += 1) card.tokens[index].classList.add("sel");
    card.tokens[from].classList.add("sel-first");
    card.tokens[to].classList.add("sel-last");
    if (box.hidden) return;
    const frame = card.words.getBoundingClientRect();
    const start = card.tokens[from].getClientRects()[0];
    const end = [...card.tokens[to].getClientRects()].at(-1);
    if (!start || !end) return;
    edges.forEach((edge, which) => {
      if (edge.parentNode !== card.words) card.words.append(edge);
      const rect = which ? end : start;
      edge.style.left = `${(which ? rect.right : rect.left) - frame.left}px`;
      edge.style.top = `${rect.top - frame.top}px`;
      edge.style.height = `${rect.height}px`;
      edge.setAttribute("aria-valuemax", card.tokens.length);
      edge.setAttribute("aria-valuenow", (which ? to : from) + 1);
      edge.setAttribute("aria-valuetext", card.completion.pieces[which ? to : from].trim());
    });
  }

  // ---- moving an edge

  const edges = ["Start", "End"].map((name, which) => {
    const edge = make("span", `edge edge-${name.toLowerCase()}`);
    edge.setAttribute("role", "slider");
    edge.setAttribute("aria-label", `${name} of the chosen words`);
    edge.setAttribute("aria-valuemin", "1");
    edge.tabIndex = 0;
    edge.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      event.stopPropagation();
      edge.setPointerCapture(event.pointerId);
      dragging = { edge: which };
    });
    edge.addEventListener("pointermove", (event) => {
      if (dragging?.edge === which) moveTo(which, tokenNear(chosen.card, event.clientX, event.clientY));
    });
    const stop = () => {
      if (dragging?.edge !== which) return;
      dragging = null;
      place();
    };
    edge.addEventListener("pointerup", stop);
    edge.addEventListener("pointercancel", stop);
    edge.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return event.key === "Escape" && close();
      event.preventDefault();
      event.stopPropagation();
      moveTo(which, (which ? last() : first()) + by);
    });
    return edge;
  });

  function moveTo(which, index) {
    const { card } = chosen;
    const [from, to] = which ? [first(), Math.max(first(), index)] : [Math.min(last(), index), last()];
    if (index < 0 || index >= card.tokens.length || (from === first() && to === last())) return;
    if (isSpecial(card, which ? to : from)) return;
    choose(card, from, to);
    title();
    if (draft) Object.assign(draft, charactersOf(card, from, to));
    else if (target) write(charactersOf(card, from, to), true);
  }

  // ---- what is written about them

  function current() {
    if (draft) return draft;
    return target.found !== undefined ? chosen.card.spanAt(target.found) : chosen.card.get(target);
  }

  function write(patch, typing = false) {
    const { card } = chosen;
    if (draft) {
      target = card.addNote({ ...draft, ...patch }, typing);
      draft = null;
    } else {
      if (target.found !== undefined) target = card.grasp(target.found);
      card.edit(target, patch, typing);
    }
    fill();
  }

  const verdicts = radios(at("verdicts"), "verdict", VERDICTS, (verdict) => write({ verdict }));
  const severities = radios(
    at("severities"),
    "severity",
    SEVERITIES.map(([value, label], index) => [value, label, index + 1]),
    (severity) => write({ severity: Number(severity) }),
  );

  function title() {
    const { start, end } = charactersOf(chosen.card, first(), last());
    const words = Array.from(chosen.card.completion.text).slice(start, end).join("");
    at("note-title").textContent = `“${words}”`;
  }

  function fill() {
    const now = current();
    if (!now) return close();
    if (comment.value !== (now.comment || "")) comment.value = now.comment || "";
    verdicts.forEach((input) => (input.checked = input.value === now.verdict));
    severities.forEach((input) => (input.checked = now.severity != null && Math.abs(input.value - now.severity) < 0.01));
    title();
    paint();
  }

  // The box for the chosen words; for a span that covers them exactly, that span.
  function open(focus = true) {
    const { card } = chosen;
    const range = charactersOf(card, first(), last());
    const exact = card.row.spans.findIndex(([from, to]) => from === first() && to === last() + 1);
    if (!target && exact >= 0) target = { found: exact };
    draft = null;
    if (!target) draft = { ...range, comment: "", verdict: "poor", severity: null };
    box.hidden = false;
    fill();
    place();
    if (focus) comment.focus({ preventScroll: true });
  }

  function place() {
    if (box.hidden || !chosen) return;
    paint();
    if (innerWidth < TOUCH) {
      box.style.left = box.style.top = "";
      // Not behind the box, which stands at the foot of the screen.
      const low = chosen.card.tokens[last()].getBoundingClientRect().bottom - (innerHeight - box.offsetHeight - 16);
      if (low > 0) scrollBy(0, low);
      return;
    }
    const [rect] = chosen.card.tokens[first()].getClientRects();
    const end = [...chosen.card.tokens[last()].getClientRects()].at(-1);
    const left = Math.max(8, Math.min(rect.left - 8, innerWidth - box.offsetWidth - 24));
    const below = end.bottom + 10;
    const above = rect.top - box.offsetHeight - 10;
    box.style.left = `${left + scrollX}px`;
    box.style.top = `${(below + box.offsetHeight < innerHeight || above < 60 ? below : above) + scrollY}px`;
  }

  function close(focus = true) {
    const was = chosen;
    box.hidden = true;
    target = draft = null;
    clear();
    if (focus && was) focusToken(was.card, Math.max(was.from, was.to));
  }

  function openSpan(card, number, focus = true) {
    const [from, to] = card.row.spans[number];
    target = { found: number };
    draft = null;
    choose(card, from, to - 1);
    if (chosen) open(focus);
  }

  function remove() {
    const { card } = chosen;
    if (!draft) card.drop(target.found !== undefined ? card.grasp(target.found) : target);
    close();
  }

  // Where the caret is: the shortest span there, or the word.
  function openAt(card, index, focus = true) {
    const numbers = spansOf(card.row, index).sort((a, b) => lengthOf(card.row, a) - lengthOf(card.row, b));
    if (numbers.length) return openSpan(card, numbers[0], focus);
    target = null;
    if (isSpecial(card, index)) return;
    choose(card, ...wordAt(card, index));
    open(focus);
  }

  // ---- mouse and finger

  const cardAt = (element) => cardOf(element.closest?.(".cards > .card"));
  const list = document.querySelector(".right");
  list.addEventListener("pointerdown", (event) => {
    const token = event.target.closest(".card > .completion .t");
    if (!token || event.button) return;
    const card = cardAt(token);
    const index = Number(token.dataset.index);
    dragging = { card, from: index, moved: false, touch: event.pointerType !== "mouse" };
    if (!dragging.touch) event.preventDefault();
  });
  addEventListener("pointermove", (event) => {
    if (!dragging?.card || dragging.touch) return;
    const index = tokenNear(dragging.card, event.clientX, event.clientY);
    if (!dragging.moved && index === dragging.from) return;
    if (!dragging.moved) close(false);
    dragging.moved = true;
    choose(dragging.card, ...wholeWords(dragging.card, dragging.from, index));
  });
  const wholeWords = (card, from, to) => {
    const [a, b] = [Math.min(from, to), Math.max(from, to)];
    return [wordAt(card, a)[0], wordAt(card, b)[1]];
  };
  addEventListener("pointerup", (event) => {
    const was = dragging;
    if (!was?.card) return;
    dragging = null;
    if (was.moved) {
      target = null;
      if (chosen) open();
    } else if (event.target.closest?.(".card > .completion .t")) {
      close(false);
      openAt(was.card, was.from, !was.touch);
    }
  });
  addEventListener("pointercancel", () => (dragging = null));
  document.addEventListener("pointerdown", (event) => {
    if (!box.hidden && !event.target.closest?.("#note, .edge, .completion .t, .chip")) close(false);
  });

  // ---- the keyboard over the words

  function focusToken(card, index) {
    card.tokens.forEach((token, place) => (token.tabIndex = place === index ? 0 : -1));
    card.tokens[index]?.focus({ preventScroll: false });
  }

  function beside(card, index, down) {
    const here = card.tokens[index].getClientRects()[0];
    const x = here.left + Math.min(here.width, 12) / 2;
    const rects = card.tokens.map((token) => token.getClientRects()[0]);
    const lines = rects.map((rect, place) => [place, rect]).filter(([, rect]) => rect && (down ? rect.top > here.bottom - 4 : rect.bottom < here.top + 4));
    if (!lines.length) return index;
    const near = lines.reduce((best, [, rect]) => (down ? Math.min(best, rect.top) : Math.max(best, rect.top)), down ? Infinity : -Infinity);
    const row = lines.filter(([, rect]) => Math.abs(rect.top - near) < 6);
    return row.reduce((best, each) => (Math.abs(each[1].left - x) < Math.abs(best[1].left - x) ? each : best))[0];
  }

  function walk(event, card, index) {
    const steps = {
      ArrowRight: () => index + 1,
      ArrowLeft: () => index - 1,
      ArrowDown: () => beside(card, index, true),
      ArrowUp: () => beside(card, index, false),
      Home: () => 0,
      End: () => card.tokens.length - 1,
    };
    const to = steps[event.key]?.();
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return false;
    if (card.tokens[to]) {
      const from = event.shiftKey ? (chosen?.card === card ? chosen.from : index) : null;
      if (from === null) clear();
      focusToken(card, to);
      if (from !== null) choose(card, from, to);
    }
    return true;
  }

  // A key that says something about the chosen words, or about the span or word at the caret.
  function speak(event, card, index) {
    const printable = event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey;
    const edge = event.altKey && { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const removes = event.key === "Delete" || event.key === "Backspace";
    if (!printable && !edge && !removes && event.key !== "Enter") return false;
    const kept = chosen?.card === card;
    if (kept) {
      target = null;
      open(false);
    } else openAt(card, index, false);
    if (!chosen) return false;
    const verdict = SIGN_KEYS[event.key];
    const severity = SEVERITIES[Number(event.key) - 1];
    if (edge) moveTo(event.shiftKey ? 0 : 1, (event.shiftKey ? first() : last()) + edge);
    else if (removes) remove();
    else if (verdict) write({ verdict });
    else if (severity) write({ severity: severity[0] });
    else comment.focus({ preventScroll: true });
    if (edge || verdict || severity) {
      close(false);
      focusToken(card, index);
    }
    // A letter goes on into the box, which has the focus by now.
    return !(printable && !verdict && !severity && event.key !== " ");
  }

  list.addEventListener(
    "keydown",
    (event) => {
      const token = event.target.closest(".card > .completion .t");
      if (!token) return;
      const card = cardAt(token);
      const index = Number(token.dataset.index);
      // Those are the page's.
      if (event.key === "?" || event.ctrlKey || event.metaKey || (event.altKey && /^(Digit|Key)/.test(event.code))) return;
      if (event.key === "Escape") {
        clear();
        card.focus();
        return event.preventDefault();
      }
      const handled = event.altKey || !walk(event, card, index) ? speak(event, card, index) : true;
      if (handled) event.preventDefault();
      if (handled || event.key.length === 1) event.stopPropagation();
    },
    true,
  );

  // ---- the box itself

  comment.addEventListener("input", () => chosen && write({ comment: comment.value }, true));
  box.addEventListener("submit", (event) => {
    event.preventDefault();
    close();
  });
  at("note-remove").addEventListener("click", remove);
  box.addEventListener("keydown", (event) => {
    const verdict = event.altKey && VERDICTS.find(([, , key]) => event.code === `Key${key}`);
    const severity = event.altKey && SEVERITIES[Number(event.code.replace("Digit", "")) - 1];
    const edge = event.altKey && { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape" || (event.key === "Enter" && event.target === comment && !event.shiftKey)) close();
    else if (verdict) write({ verdict: verdict[0] });
    else if (severity) write({ severity: severity[0] });
    else if (edge) moveTo(event.shiftKey ? 0 : 1, (event.shiftKey ? first() : last()) + edge);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  addEventListener("resize", place);

  return {
    openSpan,
    close,
    busy: () => Boolean(dragging) || !box.hidden,
    card: () => chosen?.card,
    repaint: (card) => chosen?.card === card && paint(),
    enter: (card) => focusToken(card, Math.max(0, card.tokens.findIndex((token) => token.tabIndex === 0))),
  };
}
