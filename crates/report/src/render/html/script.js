"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    /* Chromium prints a button element empty where a head is repeated on the next page. */
    const button = document.createElement("span");
    button.setAttribute("role", "button");
    button.tabIndex = 0;
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      if (!event.repeat) button.click();
    });
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => {
        const cell = row.cells[column];
        const text = cell.dataset.v ?? cell.textContent;
        const number = Number(text);
        return text === "" || Number.isNaN(number) ? text : number;
      };
      const compare = (a, b) => {
        if (typeof a === "number" && typeof b === "number") return a - b;
        if (typeof a === "number") return 1;
        if (typeof b === "number") return -1;
        return a.localeCompare(b);
      };
      const rows = [...body.rows].map((row) => [value(row), row]);
      rows.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
      body.append(...rows.map((pair) => pair[1]));
    });
  });
}
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
