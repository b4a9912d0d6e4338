(() => {
  "use strict";
  const root = document.documentElement;
  let stored = null;
  // A page opened from disk may have no storage; the theme then lasts as long as the page.
  try { stored = localStorage.getItem("dreamcheck-theme"); } catch (e) { stored = null; }
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("dreamcheck-theme", root.dataset.theme); } catch (e) { return; }
  });

  const value = (cell) => {
    if (cell.dataset.sort !== undefined) return parseFloat(cell.dataset.sort);
    const marked = cell.querySelector("data.num");
    const text = marked ? marked.getAttribute("value") : cell.textContent.trim();
    const number = parseFloat(text);
    return text !== "" && !Number.isNaN(number) && /^[-+0-9.]/.test(text) ? number : text.toLowerCase();
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      const sort = () => {
        const descending = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
        rows.sort((x, y) => (descending ? -1 : 1) * compare(x[0], y[0]));
        body.append(...rows.map((r) => r[1]));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (e) => {
        if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); }
      });
    });
  }
  for (const box of document.querySelectorAll("input[data-filter]")) {
    const table = document.getElementById(box.dataset.filter);
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/[\s,]+/).filter(Boolean);
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
      }
    });
  }
})();
