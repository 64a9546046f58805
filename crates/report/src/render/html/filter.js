"use strict";
{
  /* A table's row, a panel, a point of a list, or a column goes with the cell that it names. */
  const { baseline, cells } = pageData.study ?? { cells: [] };
  const verdicts = new Map(cells);
  const parts = [];
  for (const name of document.querySelectorAll(".cell")) {
    const head = name.closest("thead th");
    const whole = head ? [...head.closest("table").rows].map((row) => row.cells[head.cellIndex])
      : [name.closest("tr, li, .panel")];
    parts.push([name.textContent, whole]);
  }
  for (const part of document.querySelectorAll("[data-cell]")) {
    parts.push([part.dataset.cell, [part]]);
  }

  const bar = document.querySelector(".filter");
  const apply = () => {
    const words = bar.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdict = bar.querySelector("select").value;
    const fits = (name) => {
      const text = name.toLowerCase();
      return words.every((word) => text.includes(word))
        && (verdict === "" || verdicts.get(name)?.includes(verdict));
    };
    const all = [...verdicts.keys()], shown = all.filter(fits);
    for (const [name, whole] of parts) {
      const hidden = name !== baseline && !fits(name);
      for (const part of whole) part.classList.toggle("filtered", hidden);
    }
    bar.querySelector("output").textContent = shown.length === all.length ? ""
      : `${shown.length} of ${all.length} cells` + (shown.includes(baseline) ? "" : ", and the baseline");
  };
  if (bar) {
    bar.hidden = false;
    bar.addEventListener("input", apply);
    bar.querySelector("button").addEventListener("click", () => {
      for (const control of bar.querySelectorAll("input, select")) control.value = "";
      apply();
    });
  }

  /* A link to the trials of a cell shows which ones those are. */
  const show = () => {
    const first = location.hash.startsWith("#trial-") && document.getElementById(location.hash.slice(1));
    if (!first) return;
    const name = first.querySelector(".cell").textContent;
    for (const row of first.closest("tbody").rows) {
      row.classList.toggle("picked", row.querySelector(".cell").textContent === name);
    }
    first.closest("details")?.setAttribute("open", "");
    first.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", show);
  show();
}
