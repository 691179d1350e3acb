"use strict";
// Sorts a table by the column whose title was pressed; pressed again, the other way round. Cells without a number go last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const key = (row) => row.cells[column].textContent.trim();
      const rows = [...body.rows];
      rows.sort((one, other) => {
        if (column === 0) return (descending ? -1 : 1) * key(one).localeCompare(key(other), undefined, { numeric: true });
        const [a, b] = [parseFloat(key(one)), parseFloat(key(other))];
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return descending ? b - a : a - b;
      });
      body.append(...rows);
    });
  });
}
