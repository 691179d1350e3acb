"use strict";
// Tables are sorted by the column whose title is pressed; pressed again, the other way round. Cells without a number go last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.querySelectorAll("th")];
  if (body.rows.length < 2) continue;
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
      body.append(...[...body.rows].sort((one, other) => {
        const [a, b] = [one.cells[column], other.cells[column]];
        if (column === 0) return sign * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
        const [x, y] = [parseFloat(a.dataset.value), parseFloat(b.dataset.value)];
        return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y);
      }));
    });
  }
}
for (const button of document.querySelectorAll(".copy button")) {
  button.parentElement.hidden = false;
  button.addEventListener("click", async () => {
    const title = button.textContent;
    button.textContent = await navigator.clipboard.writeText(button.dataset.text).then(() => "copied", () => "not copied");
    setTimeout(() => { button.textContent = title; }, 1500);
  });
}
for (const slider of document.querySelectorAll(".slider")) {
  slider.hidden = false;
  const slices = [...slider.parentElement.querySelectorAll(".slice")];
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
  const target = document.getElementById(location.hash.slice(1));
  const folded = target?.closest("details") ?? target?.nextElementSibling;
  if (folded?.tagName === "DETAILS" && !folded.open) {
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
