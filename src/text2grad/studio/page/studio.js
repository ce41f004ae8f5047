// The studio's page: one state, fetched from the server and fetched again whenever an event says that it changed.
// The address after # says what is shown, so a reload comes back to it.

import { makeCard, SCORES } from "./card.js";
import { drawLearned, drawVersions, nothingLearned } from "./learned.js";
import { drawPeople } from "./people.js";
import { Refused, call, isHere, listen, onConnection } from "./server.js";
import { makeWords } from "./words.js";

const AT_ONCE = 50;
const KEYS = [
  ["Anywhere", [
    ["Alt+1 … 4", "write about completion A … D"],
    ["Ctrl+Enter", "next completion, then next prompt"],
    ["Alt+J, Alt+K", "next, previous prompt"],
    ["Alt+Q", "to the queue"],
    ["Ctrl+Z, Ctrl+Shift+Z", "undo, redo"],
    ["Alt+L", "Learn"],
    ["Alt+Shift+L", "Undo learning"],
    ["Alt+C", "cancel the learning that runs"],
    ["?", "this help, outside of text boxes"],
  ]],
  ["In a critique", [
    ["Esc", "to the words of the completion"],
    ["Alt+R", "corrected version instead, and back"],
    ["Alt+↑, Alt+↓", "overall score up, down"],
  ]],
  ["Over the words", [
    ["← → ↑ ↓ Home End", "move"],
    ["Shift + those", "select words"],
    ["type", "comment on the selected words"],
    ["+  −  .", "good, poor, neutral"],
    ["1  2  3", "mild, clear, severe"],
    ["Alt+← →", "move the end of the span"],
    ["Alt+Shift+← →", "move its start"],
    ["Enter", "open the span"],
    ["Delete", "remove the span"],
    ["Esc", "back to the critique"],
  ]],
  ["In a comment", [
    ["Alt+P, G, N", "poor, good, neutral"],
    ["Alt+1, 2, 3", "mild, clear, severe"],
    ["Alt+← →, Alt+Shift+← →", "move the edges"],
    ["Enter, Esc", "done"],
  ]],
];

let state = null;
let queue = { total: 0, items: [] };
let prompt = null; // as the server sent it
let cards = [];
let job = null; // the last one that was heard of
let started = null; // the Learn that this window started
let stopped = null; // the job that this window cancelled
const sides = new WeakMap();
const byElement = new WeakMap();

// ---- what the others use

const app = {
  sides,
  me: () => state?.me,
  say,
  needName: () => askName(),
  repaint: (card) => words?.repaint(card),
  openSpan: (card, number) => words.openSpan(card, number),
  hideTip: () => links?.hide(),
  showTip: (phrase) => links.show(phrase),
  addPrompt: async (text) => {
    await call("POST", "/api/prompts", { prompt: text });
    await loadQueue();
  },
  upload: async (file) => {
    const told = await call("POST", "/api/upload", file);
    await loadQueue();
    return told;
  },
  undoUpload: async () => {
    const told = await call("POST", "/api/upload/undo");
    await loadQueue();
    return told;
  },
};
const words = makeWords((element) => byElement.get(element));
const links = linkPhrases(at("work"), sides, (element) => words.busy() || dull(element));
// Tokens that no critique is about have nothing to say here.
function dull(element) {
  const { index } = element.dataset;
  const { row } = sides.get(element.closest(".side"));
  return index !== undefined && !spansOf(row, Number(index)).length && !(isLast(row, Number(index)) && row.omissions?.length);
}

const LASTS = 5000;
let until = 0; // what was said stays as long

function say(text, aloud = true) {
  at("said").textContent = text;
  if (!aloud) return;
  at("live").textContent = text;
  until = job ? 0 : Date.now() + LASTS;
  soon("rest", LASTS, rest);
}

const many = (count, noun) => `${counted(count)} ${noun}${count === 1 ? "" : "s"}`;

// Runs one thing after the other; what fails is said, and does not stop the rest.
async function attempt(doing) {
  try {
    return await doing();
  } catch (problem) {
    if (problem instanceof Refused && (problem.status === 401 || problem.status === 403)) locked(problem);
    else say(problem.message);
    return null;
  }
}

function locked(problem) {
  at("away").hidden = false;
  at("away").textContent = `${problem.message} Open the address that the terminal shows.`;
}

// ---- state

async function loadState() {
  state = await call("GET", "/api/state");
  at("away").hidden = true;
  hear(state.job);
  drawState();
}

function drawState() {
  const { counts, version } = state;
  at("facts").replaceChildren(
    make("span", "", `${many(counts.today, "critique")} today`),
    make("span", "wide", `${state.model} · ${state.task}`),
    make("span", "", `version ${version}`),
  );
  at("me").textContent = state.me || "Who are you?";
  at("me").setAttribute("aria-label", state.me ? `You are ${state.me}. Change the name.` : "Who are you?");
  const busy = Boolean(job);
  const critic = Boolean(state.critic) && at("critic").checked; // It needs nobody's words.
  at("learn").disabled = busy || !state.ready || !(counts.critiques || critic);
  at("learn").textContent = counts.unlearned ? `Learn from ${counted(counts.unlearned)} new` : "Learn";
  at("learn").title = counts.critiques || critic ? "Alt+L" : "Write a critique first";
  at("unlearn").disabled = busy || !state.can_undo;
  at("relearn").hidden = !state.can_redo;
  at("relearn").disabled = busy;
  at("with-critic").hidden = at("rl-note").hidden = !state.critic;
  at("critic-name").textContent = state.critic || "";
  at("updates").placeholder = state.updates;
  at("sample").disabled = busy;
  rest();
}

function rest() {
  if (state && !job && Date.now() >= until) say(resting(state.counts), false);
}

function resting(counts) {
  if (state.note) return state.note;
  if (!counts.critiques) return "Read a completion and say what is wrong with it, in plain words.";
  if (counts.unlearned) return `${many(counts.unlearned, "critique")} not learned from yet.`;
  return "The model has learned from every critique.";
}

// ---- jobs

const KINDS = { start: "Getting the model ready", sample: "Sampling", learn: "Learning", undo: "Undoing the learning", redo: "Redoing the learning" };
let told = "";
const waits = {};

// Once, after a while; asked again meanwhile, later.
function soon(name, wait, doing) {
  clearTimeout(waits[name]);
  waits[name] = setTimeout(() => attempt(doing), wait);
}

const isLive = (one) => ["queued", "running"].includes(one.state);
// Completions of other prompts are sampled ahead; nobody waits for those.
const matters = (one) => one.kind !== "sample" || one.id === started || one.id === prompt?.sampling;

function hear(next) {
  job = next && isLive(next) && matters(next) ? next : null;
  at("progress").hidden = !job;
  const stoppable = job && (job.kind === "learn" || job.id === started);
  if (!stoppable && document.activeElement === at("cancel")) at("work").focus();
  at("cancel").hidden = !stoppable;
  at("cancel").disabled = Boolean(job) && job.id === stopped;
  if (!job) return;
  const percent = Math.round(100 * (next.progress || 0));
  at("progress").firstChild.style.width = `${percent}%`;
  at("progress").setAttribute("aria-valuenow", percent);
  const left = next.seconds_left == null ? "" : `, about ${Math.max(1, Math.round(next.seconds_left))} s left`;
  const text = `${KINDS[next.kind] || next.kind}: ${next.state === "queued" ? "waiting" : next.message || "working"}${left}`;
  at("progress").setAttribute("aria-valuetext", text);
  // Read aloud at the start and at each quarter only.
  const quarter = `${next.id} ${Math.floor(percent / 25)}`;
  say(text, quarter !== told);
  told = quarter;
}

async function ended(id) {
  const last = await attempt(() => call("GET", `/api/jobs/${id}`));
  if (!last) return;
  await attempt(loadState);
  const failed = { failed: `${KINDS[last.kind]} failed: ${last.error || last.message}`, interrupted: `${KINDS[last.kind]} was interrupted: ${last.message}.` };
  if (failed[last.state]) say(failed[last.state]);
  if (last.kind === "learn" && last.state === "done") {
    say(`Version ${state.version} is learned.`);
    if (started === last.id) location.hash = `#/learned/${state.version}`;
  } else if (last.kind === "undo" && last.state === "done") say(`Back at version ${state.version}.`);
  if (started === last.id) started = null;
  await attempt(loadQueue);
  await show();
}

async function learn() {
  if (at("learn").disabled) return;
  at("how").open = false;
  await Promise.all(cards.map((card) => card.save()));
  const asked = {};
  if (at("updates").value) asked.updates = Number(at("updates").value);
  if (state.critic) asked.critic = at("critic").checked;
  await start("/api/learn", asked);
}

async function start(path, asked = {}) {
  at("learn").disabled = at("unlearn").disabled = true;
  const made = await attempt(() => call("POST", path, asked));
  if (made) started = made.job;
  const said = at("said").textContent;
  await attempt(loadState);
  if (!made) say(said);
}

async function cancel() {
  if (at("cancel").hidden || at("cancel").disabled) return;
  const { id } = job;
  if (!(await attempt(() => call("POST", `/api/jobs/${id}/cancel`)))) return;
  stopped = id;
  if (job?.id === id) at("cancel").disabled = true;
  say("Cancelling …");
}

// ---- the queue

const chosen = (id) => at(id).value;
const queuePath = (offset) => `/api/queue?order=${chosen("order")}&filter=${chosen("filter")}&offset=${offset}&limit=${AT_ONCE}`;

let asked = 0;

async function loadQueue() {
  asked += 1;
  const turn = asked;
  const size = Math.max(AT_ONCE, queue.items.length);
  const got = await call("GET", queuePath(0));
  while (got.items.length < Math.min(size, got.total)) {
    const next = await call("GET", queuePath(got.items.length));
    if (!next.items.length) break;
    got.items.push(...next.items);
  }
  if (turn !== asked) return; // It was asked for again meanwhile, perhaps in another order.
  queue = got;
  drawQueue();
}

function entitle() {
  const place = queue.items.findIndex((item) => item.id === prompt?.id);
  at("prompt-title").textContent = place < 0 ? "Prompt" : `Prompt ${place + 1} of ${counted(queue.total)}`;
}

function drawQueue() {
  entitle();
  const list = at("queue");
  const held = list.contains(document.activeElement) ? document.activeElement.hash : null;
  const top = list.scrollTop;
  const items = queue.items.map((item) => {
    const line = make("li");
    const link = make("a");
    link.href = `#/write/${encodeURIComponent(item.id)}`;
    const badges = make("span", "badges");
    if (item.mine) badges.append(make("span", "badge mine", "✓"));
    if (item.people > 1) badges.append(make("span", "badge", `${item.people} people`));
    else if (item.critiques && !item.mine) badges.append(make("span", "badge", `${item.critiques}`));
    link.append(make("span", "first", item.prompt.replace(/\s+/g, " ").slice(0, 120)), badges);
    if (item.mine) link.setAttribute("aria-description", "you wrote about it");
    if (prompt && item.id === prompt.id) link.setAttribute("aria-current", "page");
    line.append(link);
    return line;
  });
  if (!items.length) items.push(make("li", "quiet none", chosen("filter") === "all" ? "No prompts yet. People → Bring prompts." : "None. Choose “all” to see the others."));
  list.replaceChildren(...items);
  list.scrollTop = top;
  if (held) [...list.querySelectorAll("a")].find((link) => link.hash === held)?.focus({ preventScroll: true });
  at("queue-count").textContent = many(queue.total, "prompt");
  const left = queue.total - queue.items.length;
  at("queue-more").hidden = left <= 0;
  at("queue-more").textContent = `Show ${Math.min(AT_ONCE, left)} more of ${counted(left)}`;
}

async function moreQueue() {
  const next = await call("GET", queuePath(queue.items.length));
  const place = queue.items.length;
  queue = { total: next.total, items: [...queue.items, ...next.items] };
  drawQueue();
  at("queue").querySelectorAll("a")[place]?.focus();
}

async function go(by) {
  const place = queue.items.findIndex((item) => prompt && item.id === prompt.id);
  if (place + by >= queue.items.length && queue.items.length < queue.total) await attempt(moreQueue);
  const next = queue.items[place < 0 ? 0 : place + by];
  if (next) location.hash = `#/write/${encodeURIComponent(next.id)}`;
  else say(by > 0 ? "That was the last prompt of the queue." : "This is the first prompt of the queue.");
}

// ---- one prompt and its completions

async function loadPrompt(id) {
  const got = await call("GET", `/api/prompts/${encodeURIComponent(id)}`);
  const named = location.hash.match(/^#\/write\/(.+)$/);
  if (named && named[1] !== encodeURIComponent(id)) return; // The person has gone to another prompt meanwhile.
  const moved = prompt?.id !== got.id;
  const same = !moved && got.completions.length === Number(at("list").dataset.count) && got.completions.every((each, place) => each.id === cards[place]?.id);
  prompt = got;
  if (same) [...got.completions, ...got.earlier].forEach((each) => cards.find((card) => card.id === each.id)?.update(each));
  else await drawPrompt(moved);
  document.querySelectorAll("#queue [aria-current]").forEach((link) => link.removeAttribute("aria-current"));
  const link = [...at("queue").querySelectorAll("a")].find((each) => each.hash === `#/write/${encodeURIComponent(id)}`);
  link?.setAttribute("aria-current", "page");
  const others = "author" in got && got.author !== state.me;
  at("remove-prompt").hidden = others || [...got.completions, ...got.earlier].some((each) => each.critiques.some((one) => !one.deleted));
  if (moved) link?.scrollIntoView({ block: "nearest" });
}

async function drawPrompt(moved) {
  words.close(false);
  links.hide();
  cards.forEach((card) => card.save());
  entitle();
  at("prompt").textContent = prompt.prompt;
  at("reference").hidden = !prompt.reference;
  at("reference").lastElementChild.textContent = prompt.reference || "";
  cards = prompt.completions.map((each, index) => makeCard(app, each, "ABCDEFGH"[index] || `${index + 1}`));
  cards.forEach((card) => byElement.set(card.element, card));
  at("list").replaceChildren(...cards.map((card) => card.element));
  at("list").dataset.count = cards.length;
  if (!cards.length) at("list").append(waiting());
  drawEarlier();
  if (moved) scrollTo(0, 0);
}

// A prompt that this person brought by mistake and nobody has written about.
async function removePrompt() {
  const { id } = prompt;
  if (cards.some((card) => card.unsaved()) || !confirm("Remove this prompt and its completions, for everybody? Only a prompt that you brought can be removed, and this cannot be undone.")) return;
  await call("DELETE", `/api/prompts/${encodeURIComponent(id)}`);
  const place = queue.items.findIndex((item) => item.id === id);
  await loadQueue();
  const left = queue.items.filter((item) => item.id !== id);
  const next = left[Math.min(Math.max(place, 0), left.length - 1)];
  prompt = null;
  cards = [];
  say("The prompt is removed.");
  location.hash = next ? `#/write/${encodeURIComponent(next.id)}` : "#/write";
}

// Completions of other versions that somebody wrote about: here, and out of the way.
function drawEarlier() {
  const box = at("earlier");
  const count = prompt.earlier?.length || 0;
  box.hidden = !count;
  box.open = false;
  box.firstElementChild.textContent = `${many(count, "completion")} of other versions, criticised before`;
  at("before").replaceChildren();
  box.ontoggle = () => {
    if (!box.open || at("before").children.length) return;
    const made = prompt.earlier.map((each) => makeCard(app, each, `of version ${each.version}`));
    made.forEach((card) => byElement.set(card.element, card));
    at("before").replaceChildren(...made.map((card) => card.element));
    cards.push(...made);
  };
}

function waiting() {
  const box = make("div", "empty");
  box.append(make("p", "", prompt.sampling ? "The model is writing completions …" : "There are no completions of this version yet."));
  return box;
}

// ---- views

const VIEWS = ["write", "learned", "people"];

async function show() {
  const [view, id] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const now = VIEWS.includes(view) ? view : "write";
  VIEWS.forEach((each) => {
    at(each).hidden = each !== now;
    if (each === now) at(`to-${each}`).setAttribute("aria-current", "page");
    else at(`to-${each}`).removeAttribute("aria-current");
  });
  links.hide();
  if (now !== "write") words.close(false);
  await attempt(async () => {
    if (!state) await loadState(); // Who somebody is has to be known before what they write is shown.
    await { write: showWrite, learned: showLearned, people: showPeople }[now](id);
  });
}

async function showWrite(id) {
  const wanted = id || prompt?.id || queue.items[0]?.id;
  const address = wanted ? `#/write/${encodeURIComponent(wanted)}` : "#/write";
  at("to-write").href = address;
  if (wanted && !id) history.replaceState(null, "", address); // The queue's order changes; a reload comes back to this one.
  if (wanted) await loadPrompt(wanted);
  else at("list").replaceChildren(Object.assign(make("div", "empty"), { textContent: state.ready ? "No prompts yet. Bring some under People." : "The model is being made ready …" }));
}

async function showLearned(id) {
  const version = Number(id) || Math.max(0, ...state.versions.map((each) => each.version).filter((each) => each <= state.version));
  const nav = drawVersions(state.versions, state.version, version);
  let drawn;
  try {
    drawn = version ? drawLearned(app, await call("GET", `/api/learned/${version}`)) : nothingLearned();
  } catch (problem) {
    if (!(problem instanceof Refused) || problem.status !== 404) throw problem;
    drawn = nothingLearned(version);
  }
  if (nav.children.length > 1) drawn.splice(1, 0, nav);
  at("learned").replaceChildren(...drawn);
}

async function showPeople(_, unasked = false) {
  const asked = [call("GET", "/api/progress"), call("GET", "/api/agreement"), loadState()];
  const [progress, agreement] = await Promise.all(asked);
  // Not while somebody is in it.
  if (unasked && at("people").contains(document.activeElement)) return;
  at("people").replaceChildren(...drawPeople(app, state, progress, agreement));
}

// ---- who

function askName() {
  if (at("who").open) return;
  at("name").value = state?.me || "";
  at("who-save").textContent = state?.me ? "Change" : "Start";
  at("who-error").hidden = at("who-again").hidden = true;
  at("who").showModal();
}

// `again`: somebody has this name, and it is the same person.
async function enter(again) {
  const name = at("name").value.trim();
  try {
    await Promise.all(cards.map((card) => card.save()));
    await call("POST", "/api/me", { name, ...(again && { again }) });
    at("who-error").hidden = at("who-again").hidden = true;
    at("who").close();
    const before = state?.me;
    await loadState();
    if (before !== state.me) cards = [];
    await attempt(loadQueue);
    await show();
    cards[0]?.focus();
  } catch (problem) {
    at("who-error").textContent = problem.message;
    at("who-error").hidden = false;
    at("who-again").hidden = problem.status !== 409;
    at("who-again").textContent = `I am ${name} on another browser`;
  }
}

at("who").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(false);
});
at("who-again").addEventListener("click", () => enter(true));
at("name").addEventListener("input", () => (at("who-again").hidden = true));

// ---- keys

function helpOf() {
  const blocks = KEYS.map(([title, keys]) => {
    const box = make("section");
    const list = make("dl");
    keys.forEach(([key, what]) => {
      const line = make("div");
      const name = make("dt");
      name.append(make("kbd", "", key));
      line.append(name, make("dd", "", what));
      list.append(line);
    });
    box.append(make("h3", "", title), list);
    return box;
  });
  at("keys").replaceChildren(...blocks);
}

const typing = (target) => target.matches?.("textarea, select, input:not([type=radio], [type=checkbox])");
const cardNow = () => byElement.get(document.activeElement?.closest?.(".cards > .card")) || words.card() || app.last || cards[0];

function onward() {
  const place = cards.indexOf(cardNow());
  words.close(false);
  if (place + 1 < cards.length) return cards[place + 1].focus();
  return go(1).then(() => setTimeout(() => cards[0]?.focus(), 150));
}

function score(by) {
  const card = cardNow();
  const values = SCORES.map(([value]) => value);
  const here = values.indexOf(card.draft.score);
  const next = here < 0 ? (by > 0 ? 3 : 1) : Math.max(0, Math.min(values.length - 1, here + by));
  card.change((draft) => (draft.score = values[next]));
  say(`Overall ${SCORES[next][1]}, ${SCORES[next][2]}.`);
}

const COMMANDS = {
  KeyJ: () => go(1),
  KeyK: () => go(-1),
  KeyQ: () => (at("queue-box").open = true) && (at("queue").querySelector("[aria-current], a") || at("queue")).focus(),
  KeyL: (event) => (event.shiftKey ? at("unlearn") : at("learn")).click(),
  KeyC: cancel,
  KeyR: () => cardNow()?.setCorrected(!cardNow().isCorrected()),
  ArrowUp: () => cardNow() && score(1),
  ArrowDown: () => cardNow() && score(-1),
};

addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const control = event.ctrlKey || event.metaKey;
  const numbered = event.altKey && /^Digit[1-4]$/.test(event.code) && cards[event.code.slice(5) - 1];
  const undoing = control && !event.altKey && ["z", "y"].includes(event.key.toLowerCase()) && !document.activeElement.matches("#own-prompt, #name, #updates");
  if (undoing && cardNow() && !at("write").hidden) {
    const card = cardNow();
    words.close(false);
    card.step(event.shiftKey || event.key.toLowerCase() === "y" ? "redo" : "undo");
  } else if (control && event.key === "Enter" && !at("write").hidden) onward();
  else if (numbered) {
    words.close(false);
    numbered.focus();
  } else if (event.altKey && !control && COMMANDS[event.code]) COMMANDS[event.code](event);
  else if (event.key === "Escape" && at("how").open) {
    at("how").open = false;
    at("how").firstElementChild.focus();
  } else if (event.key === "Escape" && event.target.matches?.(".field textarea")) words.enter(cardNow());
  else if (event.key === "?" && !typing(event.target)) at("help").showModal();
  else return;
  event.preventDefault();
});
document.querySelector(".right").addEventListener("focusin", (event) => (app.last = byElement.get(event.target.closest(".cards > .card")) || app.last));

// ---- starting

function onJob(one) {
  if (!matters(one)) return isLive(one) || soon("queue", 900, loadQueue);
  if (!isLive(one)) return attempt(() => ended(one.id));
  if (job && job.id !== one.id) return null;
  hear(one);
  ["learn", "unlearn", "relearn", "sample"].forEach((id) => (at(id).disabled = true));
  return null;
}

function onEvent(kind, data) {
  if (kind === "job") {
    onJob(data.job);
    return;
  }
  soon("state", 250, loadState);
  if (kind === "queue" || kind === "critique") soon("queue", 900, loadQueue);
  const here = data.prompt === undefined || data.prompt === prompt?.id || cards.some((card) => card.id === data.completion);
  if (!at("write").hidden && here && prompt) soon("prompt", 200, () => loadPrompt(prompt.id));
  if (!at("people").hidden) soon("people", 600, () => showPeople(null, true));
}

onConnection(async (here) => {
  at("away").hidden = here;
  at("away").textContent = "The studio's server does not answer. What you write is kept in this browser. Trying again …";
  if (!here) return;
  say("The server is back.");
  await attempt(loadState);
  cards.forEach((card) => card.unsaved() && card.save());
  await attempt(loadQueue);
  await show();
});

addEventListener("hashchange", show);
addEventListener("beforeunload", (event) => {
  if (cards.some((card) => card.unsaved()) && !isHere()) event.preventDefault();
  cards.forEach((card) => card.save());
});
at("learn").addEventListener("click", learn);
at("cancel").addEventListener("click", cancel);
at("critic").addEventListener("change", () => state && drawState());
at("remove-prompt").addEventListener("click", () => prompt && attempt(removePrompt));
at("unlearn").addEventListener("click", () => start("/api/learn/undo"));
at("relearn").addEventListener("click", () => start("/api/learn/redo"));
at("sample").addEventListener("click", () => prompt && start(`/api/prompts/${encodeURIComponent(prompt.id)}/sample`, { n: Number(chosen("many")) }));
at("me").addEventListener("click", askName);
at("help-button").addEventListener("click", () => at("help").showModal());
at("next").addEventListener("click", () => go(1));
at("previous").addEventListener("click", () => go(-1));
at("queue-more").addEventListener("click", () => attempt(moreQueue));
["order", "filter"].forEach((id) => {
  at(id).value = localStorage.getItem(`text2grad-studio/${id}`) || at(id).value;
  at(id).addEventListener("change", () => {
    localStorage.setItem(`text2grad-studio/${id}`, chosen(id));
    queue.items = [];
    attempt(loadQueue);
  });
});
document.addEventListener("click", (event) => {
  if (at("how").open && !event.target.closest("#how")) at("how").open = false;
});

helpOf();
at("queue-box").open = innerWidth > 1000; // Below that it stands above the completions, so it is closed.
await attempt(loadState);
await attempt(loadQueue);
listen(["state", "job", "critique", "queue"], onEvent);
await show();
if (state && !state.me) askName();
document.documentElement.dataset.ready = "1";
