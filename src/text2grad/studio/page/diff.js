// What a corrected version changes, word by word.

const TOO_MANY = 4_000_000; // Cells of the table; a longer pair is shown as one change.

const wordsOf = (text) => text.match(/\s+|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]/gu) || [];

// [[kind, text]…] with kind "same", "out" or "in"; the texts of "same" and "out" make up `before`.
export function diff(before, after) {
  const a = wordsOf(before);
  const b = wordsOf(after);
  let first = 0;
  while (first < a.length && first < b.length && a[first] === b[first]) first += 1;
  let last = 0;
  while (last < a.length - first && last < b.length - first && a.at(-1 - last) === b.at(-1 - last)) last += 1;
  const parts = [];
  const add = (kind, text) => {
    if (!text) return;
    if (parts.length && parts.at(-1)[0] === kind) parts.at(-1)[1] += text;
    else parts.push([kind, text]);
  };
  add("same", a.slice(0, first).join(""));
  middle(a.slice(first, a.length - last), b.slice(first, b.length - last), add);
  add("same", last ? a.slice(-last).join("") : "");
  return tidy(parts);
}

// The longest common words of what differs.
function middle(a, b, add) {
  const wide = b.length + 1;
  if (a.length * b.length > TOO_MANY) {
    add("out", a.join(""));
    add("in", b.join(""));
    return;
  }
  const common = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i * wide + j] =
        a[i] === b[j]
          ? common[(i + 1) * wide + j + 1] + 1
          : Math.max(common[(i + 1) * wide + j], common[i * wide + j + 1]);
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      add("same", a[i]);
      i += 1;
      j += 1;
    } else if (j === b.length || (i < a.length && common[(i + 1) * wide + j] >= common[i * wide + j + 1])) {
      add("out", a[i]);
      i += 1;
    } else {
      add("in", b[j]);
      j += 1;
    }
  }
}

// A space alone between two changes belongs to them: "two words" reads better than "two", " ", "words".
function tidy(parts) {
  const made = [];
  let out = "";
  let into = "";
  const flush = () => {
    if (out) made.push(["out", out]);
    if (into) made.push(["in", into]);
    out = into = "";
  };
  parts.forEach(([kind, text], index) => {
    const next = parts[index + 1];
    if (kind === "out") out += text;
    else if (kind === "in") into += text;
    else if ((out || into) && next && /^\s+$/.test(text)) {
      out += text;
      into += text;
    } else {
      flush();
      made.push(["same", text]);
    }
  });
  flush();
  return made;
}

export function drawDiff(parts) {
  const names = { same: "span", out: "del", in: "ins" };
  return parts.map(([kind, text]) => make(names[kind], kind, text));
}
