for (const table of document.querySelectorAll("table")) {
  if (table.tBodies[0].rows.length < 2) continue;
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
  }
  makeSortable(table);
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
  show(); // reloaded, it may keep its place
}
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
