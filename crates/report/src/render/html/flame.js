"use strict";
{
  const { names, parts, graphs } = pageData.flames ?? { graphs: [] };
  const LINE = 18;
  /* Pixels below which a box has no room for letters. */
  const LETTERS = 24;

  const make = (tag, name, text = "") => {
    const part = document.createElement(tag);
    part.className = name;
    part.textContent = text;
    return part;
  };

  const percent = (part) => {
    if (part > 0 && part < 0.0005) return "<0.1%";
    return `${(part * 100).toFixed(part !== 0 && part < 0.0995 ? 1 : 0)}%`;
  };

  /* Callers come before what they called, so a box begins where its caller's last one ended. */
  const unpacked = ({ boxes, changes }) => {
    const list = typeof boxes === "number" ? graphs[boxes].boxes : boxes;
    const all = [], open = [];
    for (let i = 0; i < list.length; i += 3) {
      const [name, depth, width] = list.slice(i, i + 3);
      const under = depth > 0 ? open[depth - 1] : open.root ??= { next: 0 };
      const box = { name: names[name >> 1], kernel: name % 2 === 1, depth, width, under };
      box.next = box.start = under.next;
      box.change = changes?.[i / 3];
      under.next += width;
      open[depth] = box;
      all.push(box);
    }
    return all;
  };

  const isWithin = (box, outer) => {
    while (box && box !== outer) box = box.under;
    return box === outer;
  };

  const draw = (place, graph, title) => {
    const all = unpacked(graph);
    const lines = Math.max(...all.map((box) => box.depth)) + 1;
    const most = Math.max(...all.map((box) => Math.abs(box.change ?? 0)), 1);
    const amount = (width) => (width * graph.total / parts).toFixed(graph.digits);
    let zoomed = null, active = null;

    const bar = make("div", "controls");
    bar.setAttribute("role", "search");
    const label = make("label", "", "Search ");
    const search = document.createElement("input");
    search.type = "search";
    label.append(search);
    const reset = make("button", "", "Reset");
    reset.type = "button";
    const found = make("output", "");
    bar.append(label, reset, found);

    const tree = make("div", "boxes");
    tree.tabIndex = 0;
    tree.setAttribute("role", "tree");
    tree.setAttribute("aria-label", title);
    tree.style.height = `${lines * LINE}px`;
    for (const box of all) {
      const kind = box.change < 0 ? "less" : box.kernel ? "kernel" : "program";
      const part = make("div", `box ${box.change > 0 ? "more" : kind}`, box.name);
      if (box.change !== undefined) {
        if (box.change === 0) part.className = "box same";
        part.style.setProperty("--strength", 0.12 + 0.88 * Math.abs(box.change) / most);
      }
      const sign = box.change > 0 ? "+" : box.change < 0 ? "\u2212" : "";
      part.dataset.tip = `${box.name}: ${amount(box.width)} ${graph.unit}, ${percent(box.width / parts)}`
        + (box.change === undefined ? "" : `, change ${sign}${amount(Math.abs(box.change))}`);
      part.setAttribute("role", "treeitem");
      part.setAttribute("aria-label", part.dataset.tip);
      part.setAttribute("aria-level", box.depth + 1);
      part.id = `box-${place.dataset.chart}-${tree.childElementCount}`;
      part.style.bottom = `${box.depth * LINE}px`;
      box.part = part;
      tree.append(part);
    }
    const boxOf = (event) => all[[...tree.children].indexOf(event.target.closest(".box"))];

    const lay = () => {
      const { start, width } = zoomed ?? { start: 0, width: parts };
      const least = LETTERS / tree.clientWidth * width;
      for (const box of all) {
        const above = zoomed && box !== zoomed && isWithin(zoomed, box);
        const shown = !zoomed || above || isWithin(box, zoomed);
        box.part.hidden = !shown;
        box.part.classList.toggle("caller", Boolean(above));
        box.part.textContent = !above && box.width < least ? "" : box.name;
        box.part.style.left = `${above ? 0 : (box.start - start) / width * 100}%`;
        box.part.style.width = `${above ? 100 : box.width / width * 100}%`;
      }
    };
    const zoom = (box) => {
      zoomed = box ?? null;
      lay();
    };
    const activate = (box) => {
      if (!box) return;
      active = box;
      tree.setAttribute("aria-activedescendant", box.part.id);
      showTip(box.part);
    };

    /* A match within a match is already in its share. */
    const seek = () => {
      const text = search.value.trim().toLowerCase();
      const matches = all.filter((box) => {
        const hit = text !== "" && box.name.toLowerCase().includes(text);
        box.part.classList.toggle("match", hit);
        box.counted = box.under.counted || hit;
        return hit;
      });
      const outer = matches.filter((box) => !box.under.counted);
      const share = outer.reduce((sum, box) => sum + box.width, 0) / parts;
      const least = graph.narrower > 0.0005 ? "at least " : "";
      const boxes = matches.length === 1 ? "box" : "boxes";
      found.textContent = matches.length > 0 ? `${least}${percent(share)} in ${matches.length} ${boxes}`
        : text === "" ? "" : "not found";
      tree.classList.toggle("searched", matches.length > 0);
      return outer;
    };

    const clear = () => {
      search.value = "";
      seek();
    };
    search.addEventListener("input", seek);
    search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") clear();
      if (event.key !== "Enter") return;
      const widest = seek().sort((a, b) => b.width - a.width)[0];
      if (!widest) return;
      zoom(null);
      tree.focus();
      activate(widest);
    });
    reset.addEventListener("click", () => {
      clear();
      zoom(null);
      showTip(null);
    });
    tree.addEventListener("click", (event) => {
      const box = boxOf(event);
      zoom(box === zoomed ? null : box);
      activate(box);
    });
    tree.addEventListener("blur", () => showTip(null));
    tree.addEventListener("keydown", (event) => {
      const seen = all.filter((box) => !box.part.hidden);
      const at = active && !active.part.hidden ? active : null;
      const line = at ? seen.filter((box) => box.depth === at.depth) : [];
      const above = seen.filter((box) => at && box.under === at).sort((a, b) => b.width - a.width);
      const moves = {
        ArrowUp: () => activate(at ? above[0] : seen[0]),
        ArrowDown: () => activate(at ? (at.depth > 0 ? at.under : at) : seen[0]),
        ArrowLeft: () => activate(line[line.indexOf(at) - 1] ?? at ?? seen[0]),
        ArrowRight: () => activate(line[line.indexOf(at) + 1] ?? at ?? seen[0]),
        Home: () => activate(seen[0]),
        Enter: () => { zoom(at); activate(at); },
        Escape: () => { zoom(null); activate(at); },
      };
      if (!Object.hasOwn(moves, event.key)) return;
      event.preventDefault();
      moves[event.key]();
    });
    place.append(bar, tree);
    lay();
    new ResizeObserver(lay).observe(tree);
  };

  for (const place of document.querySelectorAll(".flame")) {
    const fold = place.closest("details");
    const title = fold.querySelector("summary").textContent;
    const once = () => {
      if (place.childElementCount === 0) draw(place, graphs[place.dataset.chart], title);
    };
    fold.addEventListener("toggle", once);
    addEventListener("beforeprint", once);
    if (fold.open) once();
  }
}
