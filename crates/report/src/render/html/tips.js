"use strict";
/* What the page has as data: the cells with their verdicts, and the boxes of flame graphs. */
const pageData = JSON.parse(document.getElementById("data")?.textContent ?? "{}");

/* One tip for all figures: what is pointed at, touched or reached by keys says its data-tip. */
const showTip = (() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let shown = null;
  return (mark) => {
    if (mark === shown) return;
    shown?.classList.remove("pointed");
    shown = mark ?? null;
    tip.hidden = !shown;
    if (!shown) return;
    shown.classList.add("pointed");
    tip.textContent = shown.dataset.tip;
    const at = shown.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const left = (Math.max(at.left, 0) + Math.min(at.right, wide) - own.width) / 2;
    const top = at.top - own.height - 6;
    tip.style.left = `${Math.max(4, Math.min(left, wide - own.width - 4))}px`;
    tip.style.top = `${top < 4 ? at.bottom + 6 : top}px`;
  };
})();
{
  /* How far off a mark may be pointed at, pixels: a finger is wider than a dot. */
  const NEAR = { mouse: 8, pen: 8, touch: 24 };

  const distance = (mark, x, y) => {
    if (mark.points) {
      const matrix = mark.getScreenCTM();
      const off = (point) => {
        const at = point.matrixTransform(matrix);
        return Math.hypot(at.x - x, at.y - y);
      };
      return Math.min(...[...mark.points].map(off));
    }
    const { left, right, top, bottom } = mark.getBoundingClientRect();
    return Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
  };

  const pointed = (event) => {
    const chart = event.target.closest?.(".chart");
    if (!chart) return event.target.closest?.("[data-tip]");
    const marks = [...chart.querySelectorAll("[data-tip]")].map((mark) => {
      return [distance(mark, event.clientX, event.clientY), mark];
    });
    const nearest = marks.reduce((a, b) => (b[0] <= a[0] ? b : a), [NEAR[event.pointerType] ?? 8, null]);
    return nearest[1];
  };
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => showTip(pointed(event)));
  }
  addEventListener("keydown", (event) => event.key === "Escape" && showTip(null));
  addEventListener("scroll", () => showTip(null), { passive: true, capture: true });

  /* A figure is one stop for the key Tab; arrows go from mark to mark and from row to row. */
  for (const figure of document.querySelectorAll("figure")) {
    const caption = figure.querySelector("figcaption");
    figure.setAttribute("aria-label", caption.textContent.split(/[.:,;(]/)[0].trim());
    const drawn = (chart) => chart.querySelector("[data-tip]");
    const charts = [...figure.querySelectorAll(".chart")].filter(drawn);
    charts.forEach((chart, row) => {
      const marks = [...chart.querySelectorAll("[data-tip]")];
      const head = chart.closest("tr, .panel")?.querySelector("th, h3");
      let at = 0;
      chart.tabIndex = row === 0 ? 0 : -1;
      chart.removeAttribute("aria-hidden");
      chart.setAttribute("role", "img");
      chart.setAttribute("aria-label", `${head?.textContent ?? figure.ariaLabel}: ${marks.length} values, arrow keys`);
      chart.addEventListener("focus", () => chart.matches(":focus-visible") && showTip(marks[at]));
      chart.addEventListener("blur", () => showTip(null));
      chart.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        const rows = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (step) showTip(marks[at = (at + step + marks.length) % marks.length]);
        if (rows) {
          const seen = charts.filter((other) => other.getClientRects().length > 0);
          seen[seen.indexOf(chart) + rows]?.focus();
        }
        if (step || rows) event.preventDefault();
      });
    });
  }
}
