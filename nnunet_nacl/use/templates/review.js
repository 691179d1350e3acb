"use strict";
const table = document.getElementById("cases");
const body = table.tBodies[0];
const articles = new Map([...document.querySelectorAll("article")].map((one) => [one.dataset.case, one]));
const [search, structure, reasons, open, outlines, doubt] = ["search", "structure", "reasons", "open", "outlines", "doubt"].map((id) => document.getElementById(id));
const heads = [...table.tHead.rows[0].cells];
const [CASE, TRUST, RANK, , WHY] = heads.keys();
const seen = new Set();
let chosen = null;

const shown = () => [...body.rows].filter((row) => !row.hidden);

// Shows a case. The list scrolls along, the page does not.
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

// Hides rows. If the chosen one is hidden, the next one is chosen; after the last, the first.
function filter() {
  const text = search.value.trim().toLowerCase();
  for (const row of body.rows) {
    const why = row.cells[WHY].textContent.trim();
    const about = structure.value ? why.split("; ").filter((one) => one.startsWith(`${structure.value}: `)).join("; ") : why;
    row.hidden = !(
      (!text || row.dataset.case.toLowerCase().includes(text) || about.toLowerCase().includes(text)) &&
      (!reasons.checked || about) &&
      (!open.checked || !seen.has(row.dataset.case))
    );
  }
  const rows = shown();
  document.getElementById("count").textContent = `${rows.length} of ${body.rows.length} cases`;
  const isNext = (row) => chosen && row.compareDocumentPosition(chosen) & Node.DOCUMENT_POSITION_PRECEDING;
  if (!chosen || chosen.hidden) choose(rows.find(isNext) || rows[0]);
}

function sort(column, descending) {
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
  const sign = descending ? -1 : 1;
  const key = (row) => row.cells[column].textContent.trim();
  const isText = column === CASE || column === WHY;
  const rows = [...body.rows];
  rows.sort((one, other) => sign * (isText ? key(one).localeCompare(key(other), undefined, { numeric: true }) : parseFloat(key(one)) - parseFloat(key(other))));
  body.append(...rows);
}

// Trust, rank and order are those of the chosen structure; of none, those of each case's lowest one.
function rankBy() {
  for (const row of body.rows) {
    const all = [...row.querySelectorAll("[data-structure]")];
    const one = all.find((span) => !structure.value || span.dataset.structure === structure.value);
    all.forEach((span, number) => { span.hidden = structure.value ? span !== one : number > 2; });
    const more = row.querySelector(".more");
    if (more) more.hidden = Boolean(structure.value);
    row.cells[TRUST].textContent = Number(one.dataset.trust).toFixed(2);
    row.cells[RANK].textContent = one.dataset.rank;
  }
  body.append(...[...body.rows].sort((one, other) => one.dataset.order - other.dataset.order));
  sort(RANK, false);
  choose(shown()[0]);
}

function mark(name, is) {
  if (is) seen.add(name);
  else seen.delete(name);
  for (const row of body.rows) if (row.dataset.case === name) row.classList.toggle("done", is);
  articles.get(name).querySelector(".seen").checked = is;
  filter();
}

function layers() {
  document.body.classList.toggle("no-outline", !outlines.checked);
  document.body.classList.toggle("no-doubt", !doubt.checked);
}

[...body.rows].forEach((row, number) => { row.dataset.order = number; });
heads.forEach((head, column) => {
  const button = head.querySelector("button");
  if (button) button.addEventListener("click", () => sort(column, head.getAttribute("aria-sort") === "ascending"));
});
body.addEventListener("click", (event) => choose(event.target.closest("tr")));
for (const one of [search, reasons, open]) one.addEventListener("input", filter);
structure.addEventListener("input", () => { filter(); rankBy(); });
for (const one of [outlines, doubt]) one.addEventListener("input", layers);
for (const [name, article] of articles) {
  article.querySelector(".seen").addEventListener("change", (event) => mark(name, event.target.checked));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search || event.target === structure) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target === search)) event.target.blur();
    return;
  }
  const toggle = (box) => { box.checked = !box.checked; layers(); };
  const action = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    d: () => toggle(doubt), o: () => toggle(outlines),
    x: () => { if (chosen) mark(chosen.dataset.case, !seen.has(chosen.dataset.case)); }, "/": () => search.focus(),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

layers();
filter();
