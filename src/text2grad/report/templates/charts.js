// The numbers of a chart at the update that is pointed at, read from its own table.

function readOff(svg) {
  const table = svg.closest("figure").querySelector("table");
  const cells = (row) => [...row.children].map((cell) => cell.textContent);
  const names = cells(table.tHead.rows[0]).slice(1);
  const rows = [...table.tBodies[0].rows].map(cells);
  const [left, right, last, foot] = ["left", "right", "last", "foot"].map((name) => Number(svg.dataset[name]));
  const hair = document.createElementNS("http://www.w3.org/2000/svg", "path");
  hair.setAttribute("class", "hair");

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    const update = ((x - left) / (right - left)) * last;
    const far = (row) => Math.abs(row[0] - update);
    const row = rows.reduce((best, each) => (far(each) < far(best) ? each : best));
    hair.setAttribute("d", `M${left + ((right - left) * row[0]) / last} 8V${foot}`);
    svg.append(hair);
    const values = pairsOf(names.map((name, index) => [name, row[index + 1]]));
    tip.replaceChildren(make("p", "tip-title", `update ${row[0]}`), values);
    tip.hidden = false;
    const where = hair.getBoundingClientRect();
    const fits = where.right + 14 + tip.offsetWidth < innerWidth;
    moveTip(fits ? where.right + 14 : where.left - 14 - tip.offsetWidth, Math.max(8, where.top));
  });
  svg.addEventListener("pointerleave", () => {
    hair.remove();
    tip.hidden = true;
  });
}

document.querySelectorAll("svg[data-last]").forEach(readOff);
