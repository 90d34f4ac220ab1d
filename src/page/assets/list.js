// Shows a long list through a window: only the rows that are seen, and a few around them, are in the document.
import { h } from "./dom.js";

/** Rows before and behind those that are seen. */
const AROUND = 6;

/**
 * `columns` are {name, width, cell(row), minor}; `link(row)` is where a row leads; `more()` is called near the end.
 * What is focused stays so while rows change.
 */
export class List {
  constructor({ label, columns, link, more, empty }) {
    Object.assign(this, { columns, link, more, empty, rows: [], shown: new Map() });
    this.space = h("div.space");
    this.scroller = h("div.rows", { tabindex: "0", role: "group", "aria-label": label }, this.space);
    this.element = h("div.list",
      h("div.head", { "aria-hidden": "true" }, columns.map((column) => h("div", column.name))), this.scroller);
    this.element.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
    this.scroller.addEventListener("scroll", () => this.later(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.resized = new ResizeObserver(() => { this.rowHeight = 0; this.later(); });
    this.resized.observe(this.scroller);
  }

  close() { this.resized.disconnect(); }

  /** The rows, each with a `key`. */
  set(rows) {
    this.rows = rows;
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  /** **Units:** pixels; a row is higher on a narrow screen. */
  height() {
    if (!this.rowHeight) {
      const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
      this.rowHeight = Math.round(rem * (matchMedia("(max-width: 42rem)").matches ? 4.6 : 2.25));
    }
    return this.rowHeight;
  }

  draw() {
    const height = this.height();
    this.space.style.height = `${this.rows.length * height}px`;
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / height) - AROUND);
    const last = Math.min(this.rows.length, Math.ceil((top + this.scroller.clientHeight) / height) + AROUND);
    const kept = new Map();
    for (let index = first; index < last; index += 1) {
      const row = this.rows[index];
      let line = this.shown.get(row.key);
      if (!line || line.row !== row) {
        const made = this.line(row);
        if (line) {
          const isFocused = document.activeElement === line.element;
          line.element.replaceWith(made);
          if (isFocused) made.focus({ preventScroll: true });
        } else {
          this.space.append(made);
        }
        line = { row, element: made };
      }
      line.element.style.top = `${index * height}px`;
      line.element.dataset.index = index;
      kept.set(row.key, line);
    }
    for (const [key, line] of this.shown) if (!kept.has(key)) line.element.remove();
    this.shown = kept;
    if (this.rows.length === 0) {
      if (!this.none) this.space.append(this.none = h("div.empty", this.empty));
    } else if (this.none) {
      this.none.remove();
      this.none = null;
    }
    if (this.more && last > this.rows.length - 50) this.more();
  }

  line(row) {
    const cells = this.columns.map((column) => h(column.minor ? "div.minor" : "div", column.cell(row)));
    return h("a.line", { href: this.link(row), tabindex: "0" }, cells);
  }

  /** Arrow keys go from row to row. */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const at = document.activeElement?.dataset?.index;
    const next = at === undefined ? Math.floor(this.scroller.scrollTop / this.height()) : Number(at) + step;
    if (next < 0 || next >= this.rows.length) return;
    event.preventDefault();
    const height = this.height();
    const { scrollTop, clientHeight } = this.scroller;
    if (next * height < scrollTop) this.scroller.scrollTop = next * height;
    if ((next + 1) * height > scrollTop + clientHeight) this.scroller.scrollTop = (next + 1) * height - clientHeight;
    this.draw();
    this.shown.get(this.rows[next].key)?.element.focus({ preventScroll: true });
  }
}
