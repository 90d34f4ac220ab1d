// Writes numbers, times, outcomes and JSON for people.
import { h } from "./dom.js";
import { nameOf } from "./names.js";

export function time(ms) {
  if (!ms) return "";
  const date = new Date(ms);
  const pad = (number, length = 2) => String(number).padStart(length, "0");
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function day(ms) {
  return ms ? `${new Date(ms).toISOString().slice(0, 10)} ${time(ms)}` : "";
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 60000) return `${(value / 60000).toFixed(1)} min`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(value < 1 ? 2 : 1)} ms`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** A peer's name; the DID of one that has none, short enough for a table. The whole DID stands in the title. */
export function did(text) {
  if (!text) return "";
  const name = nameOf(text);
  if (name) return h("span", { title: text }, name);
  const shown = text.length > 24 ? `${text.slice(0, 12)}…${text.slice(-6)}` : text;
  return h("span.mono", { title: text }, shown);
}

/** How a call stands, in one word and a colour. */
export function outcome(call) {
  if (call.state !== "finished") return { word: call.state, kind: "odd" };
  if (call.status === "success") return { word: "success", kind: "good" };
  if (call.status === "error") return { word: `error ${call.code ?? ""}`.trim(), kind: "bad" };
  if (call.code) return { word: `refused ${call.code}`, kind: "bad" };
  return { word: "finished", kind: "" };
}

export function pill(word, kind = "") {
  return h(kind ? `span.pill.${kind}` : "span.pill", word);
}

/** Any JSON as a tree that folds; what is long is folded at first. */
export function tree(value, name = null, open = true) {
  const label = name === null ? "" : `${name}: `;
  if (value === null || typeof value !== "object") {
    return h("div.mono.wrap", label, JSON.stringify(value) ?? "undefined");
  }
  const entries = Array.isArray(value) ? value.map((item, index) => [index, item]) : Object.entries(value);
  if (entries.length === 0) return h("div.mono", label, Array.isArray(value) ? "[]" : "{}");
  const brief = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  return h("details.tree", { open: open && entries.length <= 12 }, h("summary.mono", label, brief),
    entries.map(([key, item]) => tree(item, key, open)));
}
