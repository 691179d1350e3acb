// Pressed again, a column sorts the other way round; cells without a value go last.
function sortBy(table, column, sign) {
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const compare = (x, y) => !x - !y || sign * (x - y || x.localeCompare(y, undefined, { numeric: true }));
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort((one, other) => compare(value(one), value(other))));
}
function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button")?.addEventListener("click", () => sortBy(table, column, head.getAttribute("aria-sort") === "ascending" ? -1 : 1));
  });
}
