"use strict";
// Tables are sorted by the column whose title is pressed; pressed again, the other way round. Cells without a number go last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  const heads = [...table.tHead.querySelectorAll("th[data-column]")];
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    const column = Number(head.dataset.column);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const cell = (row) => row.cells[column];
      const rows = [...body.rows];
      rows.sort((one, other) => {
        if (column === 0) return (descending ? -1 : 1) * cell(one).textContent.localeCompare(cell(other).textContent, undefined, { numeric: true });
        const [a, b] = [parseFloat(cell(one).dataset.value), parseFloat(cell(other).dataset.value)];
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return descending ? b - a : a - b;
      });
      body.append(...rows);
    });
  }
}
// Buttons that copy a table.
for (const copy of document.querySelectorAll(".copy")) {
  copy.hidden = false;
  for (const button of copy.querySelectorAll("button")) {
    button.addEventListener("click", async () => {
      const area = document.createElement("textarea"); // for browsers that keep the clipboard from files
      area.value = button.dataset.text;
      document.body.append(area);
      area.select();
      let copied = document.execCommand("copy");
      area.remove();
      if (!copied && navigator.clipboard) copied = await navigator.clipboard.writeText(button.dataset.text).then(() => true, () => false);
      const title = button.textContent;
      button.textContent = copied ? "copied" : "not copied";
      setTimeout(() => { button.textContent = title; }, 1500);
      button.focus();
    });
  }
}
// Sliders through the slices of a case.
for (const view of document.querySelectorAll(".case")) {
  const slider = view.querySelector(".slider");
  if (!slider) continue;
  slider.hidden = false;
  const slices = [...view.querySelectorAll(".slice")];
  const input = slider.querySelector("input");
  const show = () => {
    slices.forEach((slice, number) => { slice.hidden = number !== Number(input.value); });
    slider.querySelector("output").textContent = slices[input.value].dataset.number;
  };
  input.addEventListener("input", show);
  show(); // a browser that loads the page again may keep the slider where it was
}
// What a link leads to is unfolded; on paper, everything is.
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  const folded = target && (target.closest("details") || (target.nextElementSibling || {}));
  if (folded && folded.tagName === "DETAILS" && !folded.open) {
    folded.open = true;
    target.scrollIntoView();
  }
};
addEventListener("hashchange", unfold);
unfold();
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
