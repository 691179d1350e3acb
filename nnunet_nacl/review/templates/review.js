"use strict";
const table = document.getElementById("rows");
const body = table.tBodies[0];
const articles = new Map([...document.querySelectorAll("article")].map((one) => [one.dataset.case, one]));
const [search, structure, reasons, open] = ["search", "structure", "reasons", "open"].map((id) => document.getElementById(id));
const seen = new Set();
const WHY = 3; // the column of the reasons
let chosen = null;

const shown = () => [...body.rows].filter((row) => !row.hidden);

// Shows a row's case. The list scrolls along, the page does not.
function choose(row) {
  if (chosen) {
    chosen.classList.remove("chosen");
    articles.get(chosen.dataset.case).hidden = true;
  }
  chosen = row || null;
  if (!chosen) return;
  chosen.classList.add("chosen");
  articles.get(chosen.dataset.case).hidden = false;
  const list = table.parentElement;
  const top = chosen.offsetTop - table.tHead.offsetHeight;
  if (top < list.scrollTop || chosen.offsetTop + chosen.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 3;
}

function step(by) {
  const rows = shown();
  const place = rows.indexOf(chosen);
  choose(rows[place < 0 ? 0 : Math.min(Math.max(place + by, 0), rows.length - 1)]);
}

function filter() {
  const text = search.value.trim().toLowerCase();
  for (const row of body.rows) {
    const why = row.cells[WHY].textContent.trim();
    row.hidden = !(
      (!text || row.dataset.case.toLowerCase().includes(text) || why.toLowerCase().includes(text)) &&
      (!structure.value || row.dataset.structure === structure.value) &&
      (!reasons.checked || why) &&
      (!open.checked || !seen.has(row.dataset.case))
    );
  }
  const rows = shown();
  document.getElementById("count").textContent = `${rows.length} of ${body.rows.length} rows`;
  if (!chosen || chosen.hidden) choose(rows[0]);
}

function mark(name, is) {
  if (is) seen.add(name);
  else seen.delete(name);
  for (const row of body.rows) if (row.dataset.case === name) row.classList.toggle("done", is);
  articles.get(name).querySelector(".seen").checked = is;
}

const heads = [...table.tHead.rows[0].cells];
heads.forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sign = descending ? -1 : 1;
    const key = (row) => row.cells[column].textContent.trim();
    const isText = column < 2 || column === WHY;
    const rows = [...body.rows];
    rows.sort((one, other) => {
      if (isText) return sign * key(one).localeCompare(key(other), undefined, { numeric: true });
      const [a, b] = [parseFloat(key(one)), parseFloat(key(other))];
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return sign * (a - b);
    });
    body.append(...rows);
  });
});

body.addEventListener("click", (event) => choose(event.target.closest("tr")));
for (const one of [search, structure, reasons, open]) one.addEventListener("input", filter);
for (const [name, article] of articles) {
  article.querySelector(".seen").addEventListener("change", (event) => {
    mark(name, event.target.checked);
    filter();
  });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === search || event.target === structure;
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target === search)) event.target.blur();
    return;
  }
  const action = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    d: () => document.body.classList.toggle("no-doubt"), o: () => document.body.classList.toggle("no-outline"),
    x: () => { if (chosen) mark(chosen.dataset.case, !seen.has(chosen.dataset.case)); }, "/": () => search.focus(),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

filter();
