// Who wrote how much, how far people agree, and what comes in and goes out.

const FORMATS = [
  ["jsonl", "JSONL", "for text2grad reward-model, sft and align"],
  ["label_studio", "Label Studio", "tasks; what people wrote as annotations"],
  ["argilla", "Argilla", "records; what people wrote as responses"],
];

function table(head, rows) {
  const element = make("table");
  const line = (cells, tag) => {
    const row = make("tr");
    cells.forEach((cell, index) => {
      const box = make(index || tag === "th" ? tag : "th", index ? "num" : "");
      box.scope = tag === "th" ? "col" : index ? "" : "row";
      box.append(cell);
      row.append(box);
    });
    return row;
  };
  const [top, body] = [make("thead"), make("tbody")];
  top.append(line(head, "th"));
  body.append(...rows.map((row) => line(row, "td")));
  element.append(top, body);
  return element;
}

function bar(share, label) {
  const box = make("span", "amount");
  const fill = make("i");
  fill.style.width = `${Math.round(100 * share)}%`;
  box.append(fill, make("span", "", label));
  return box;
}

function progressOf(state, progress) {
  const box = make("section", "panel");
  box.append(make("h2", "", "Today"));
  const most = Math.max(1, ...state.people.map((person) => person.today));
  const rows = state.people.map((person) => [
    person.name + (person.name === state.me ? " (you)" : ""),
    bar(person.today / most, counted(person.today)),
    counted(person.critiques),
  ]);
  if (!rows.length) box.append(make("p", "quiet", "Nobody has written anything yet."));
  else box.append(table(["Person", "Critiques today", "In all"], rows));
  const days = progress.days || [];
  if (days.length > 1) {
    const past = make("details");
    past.append(make("summary", "", "The days before"));
    past.append(table(["Day", "People", "Critiques"], days.map((day) => [day.day, Object.keys(day.people).join(", "), counted(day.critiques)])));
    box.append(past);
  }
  return box;
}

function agreementOf(agreement) {
  const box = make("section", "panel");
  box.append(make("h2", "", "Agreement"));
  const value = (number) => (number == null ? "–" : format(number));
  if (!agreement.people?.length)
    box.append(make("p", "quiet", agreement.note || "Two people have to criticise the same completion first."));
  else {
    const rows = agreement.people.map((pair) => [`${pair.a} and ${pair.b}`, counted(pair.completions), value(pair.characters), value(pair.verdict)]);
    box.append(table(["People", "Completions", "Words, F1", "Verdicts, kappa"], rows));
    if (agreement.note) box.append(make("p", "note", agreement.note));
  }
  return box;
}

function exportOf(state) {
  const box = make("section", "panel");
  const list = make("ul", "exports");
  FORMATS.forEach(([format, name, note]) => {
    const item = make("li");
    const link = make("a", "button small", name);
    link.href = `/api/export?format=${format}`;
    link.setAttribute("download", "");
    item.append(link, make("span", "note", note));
    list.append(item);
  });
  const nothing = !state.counts.critiques && make("p", "quiet", "There are no critiques yet; the files would be empty.");
  box.append(make("h2", "", "Export"), ...(nothing ? [nothing] : []), list);
  return box;
}

function bringOf(app) {
  const box = make("section", "panel");
  const form = make("form");
  const text = make("textarea");
  Object.assign(text, { rows: 3, id: "own-prompt", placeholder: "A prompt of your own" });
  const label = make("label", "unseen", "A prompt of your own");
  label.htmlFor = "own-prompt";
  const add = make("button", "small", "Add the prompt");
  const file = make("input");
  Object.assign(file, { type: "file", id: "own-file", accept: ".jsonl,.json,.ndjson" });
  const fileLabel = make("label", "note", "or a JSONL file of prompts, or of prompts with completions");
  fileLabel.htmlFor = "own-file";
  const said = make("p", "note");
  said.setAttribute("role", "status");
  const tell = async (doing) => {
    try {
      said.replaceChildren(...(await doing));
    } catch (problem) {
      said.textContent = problem.message;
    }
  };
  const undo = make("button", "small", "Undo this upload");
  undo.type = "button";
  undo.addEventListener("click", () => {
    const gone = ({ removed, left }) => [`${counted(removed)} taken out again.`, left ? ` ${counted(left)} stay: somebody has written about them.` : ""];
    tell(app.undoUpload().then(gone));
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (text.value.trim()) tell(app.addPrompt(text.value).then(() => ((text.value = ""), ["Added to the queue."])));
  });
  file.addEventListener("change", () => {
    if (!file.files.length) return;
    // The server names the first of the rejected lines, and counts all.
    const told = ({ added, rejected, rejected_count: all }) => [
      `${counted(added)} added.`,
      ...rejected.slice(0, 5).map(({ line, why }) => make("span", "bad", ` Line ${line}: ${why}.`)),
      all > 5 ? ` ${counted(all - 5)} more lines were rejected.` : "",
      ...(added ? [" ", undo] : []),
    ];
    said.textContent = "Sending …";
    tell(app.upload(file.files[0]).then(told));
    file.value = "";
  });
  form.append(label, text, add, fileLabel, file, said);
  box.append(make("h2", "", "Bring prompts"), form);
  return box;
}

let bring = null; // made once: what it says stays when the rest is drawn again

export function drawPeople(app, state, progress, agreement) {
  bring ??= bringOf(app);
  const grid = make("div", "panels");
  grid.append(progressOf(state, progress), agreementOf(agreement), exportOf(state), bring);
  return [make("h1", "", "People"), grid];
}
