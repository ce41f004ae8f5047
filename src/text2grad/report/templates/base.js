// What the other scripts share: making elements, writing numbers, the tooltip; and the page's own switches.
// The three files are one script in the page. Text reaches the page through textContent alone.
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

// On paper nothing can be opened.
{
  const closed = document.querySelectorAll(".run:not([open])");
  addEventListener("beforeprint", () => closed.forEach((run) => (run.open = true)));
  addEventListener("afterprint", () => closed.forEach((run) => (run.open = false)));
}
