const byId = (id) => document.getElementById(id);
const [search, structure, reasons, open] = ["search", "structure", "reasons", "open"].map(byId);
const table = byId("cases");
const body = table.tBodies[0];
const [TRUST, RANK] = [1, 2];
const articles = new Map([...document.querySelectorAll("article")].map((one) => [one.dataset.case, one]));
let chosen = null;

const shown = () => [...body.rows].filter((row) => !row.hidden);
const isAsked = (span) => !structure.value || span.dataset.structure === structure.value;

function choose(row) {
  for (const one of [chosen, row]) {
    if (!one) continue;
    one.classList.toggle("chosen", one === row);
    articles.get(one.dataset.case).hidden = one !== row;
  }
  chosen = row || null;
  if (chosen) chosen.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const rows = shown();
  choose(rows[Math.min(Math.max(rows.indexOf(chosen) + by, 0), rows.length - 1)]);
}

// A chosen row that is hidden gives way to the next, or the first.
function filter() {
  const text = search.value.trim().toLowerCase();
  for (const row of body.rows) {
    const why = [...row.querySelectorAll(".why span")].filter(isAsked);
    const searched = [row.dataset.case, ...why.map((one) => one.textContent)].join("\n").toLowerCase();
    row.hidden = !searched.includes(text) || (reasons.checked && !why.length) || (open.checked && row.classList.contains("done"));
  }
  const rows = shown();
  byId("count").textContent = `${rows.length} of ${body.rows.length} cases`;
  const isNext = (row) => chosen && row.compareDocumentPosition(chosen) & Node.DOCUMENT_POSITION_PRECEDING;
  if (!chosen || chosen.hidden) choose(rows.find(isNext) || rows[0]);
}

// Trust and rank are the structure's, or those of each case's lowest one.
function rankBy() {
  for (const row of body.rows) {
    const all = [...row.querySelectorAll(".ranks span")];
    const one = all.find(isAsked);
    all.forEach((span, number) => { span.hidden = structure.value ? span !== one : number > 2; });
    row.cells[TRUST].textContent = one.querySelector("b").textContent;
    row.cells[RANK].textContent = one.dataset.rank;
  }
  sortBy(table, RANK, 1);
  filter();
  choose(shown()[0]);
}

function mark(row, isSeen) {
  row.classList.toggle("done", isSeen);
  articles.get(row.dataset.case).querySelector(".seen").checked = isSeen;
  filter();
}

makeSortable(table);
for (const row of body.rows) {
  row.addEventListener("click", () => choose(row));
  articles.get(row.dataset.case).querySelector(".seen").addEventListener("change", (event) => mark(row, event.target.checked));
}
for (const one of [search, reasons, open]) one.addEventListener("input", filter);
structure.addEventListener("input", rankBy);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search || event.target === structure) {
    if (event.key === "Escape" || event.key === "Enter") event.target.blur();
    return;
  }
  const action = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    d: () => byId("doubt").click(), o: () => byId("outlines").click(),
    x: () => chosen && mark(chosen, !chosen.classList.contains("done")), "/": () => search.focus(),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
filter();
