// Talking to the studio's server: requests, events, and noticing that it went away.
// Nothing is kept here but whether the server answers.

export class Refused extends Error {
  constructor(status, body) {
    super(body.error || `The server answered with status ${status}.`);
    this.status = status;
    this.body = body;
  }
}

export class Away extends Error {
  constructor() {
    super("The studio's server does not answer.");
  }
}

const PATIENCE = 20_000; // milliseconds for an answer
const UPLOAD = 600_000;
const watchers = new Set();
let here = true;
let again = 0;

// `watch` is told true when the server answers again and false when it stops.
export const onConnection = (watch) => watchers.add(watch);
export const isHere = () => here;

function found() {
  if (here) return;
  here = true;
  watchers.forEach((watch) => watch(true));
}

function lost() {
  clearTimeout(again);
  again = setTimeout(() => call("GET", "/api/state").catch(() => {}), 1000);
  if (!here) return;
  here = false;
  watchers.forEach((watch) => watch(false));
}

export async function call(method, path, body) {
  const headers = { "X-Text2Grad": "1" };
  const raw = body instanceof Blob;
  if (body !== undefined) headers["Content-Type"] = raw ? "application/x-ndjson" : "application/json";
  let answer;
  let data;
  try {
    const signal = AbortSignal.timeout(raw ? UPLOAD : PATIENCE);
    answer = await fetch(path, { method, headers, signal, body: raw ? body : JSON.stringify(body) });
    data = await answer.json().catch(() => ({}));
  } catch {
    lost();
    throw new Away();
  }
  found();
  if (!answer.ok) throw new Refused(answer.status, data);
  return data;
}

// Events come as they happen; the browser resumes where it stopped. A stream that was closed is opened again.
export function listen(kinds, tell) {
  const source = new EventSource("/api/events");
  kinds.forEach((kind) =>
    source.addEventListener(kind, (event) => {
      found();
      tell(kind, JSON.parse(event.data));
    }),
  );
  source.addEventListener("open", found);
  source.addEventListener("error", () => {
    lost();
    if (source.readyState === EventSource.CLOSED) setTimeout(() => listen(kinds, tell), 2000);
  });
  addEventListener("pagehide", () => source.close());
}
