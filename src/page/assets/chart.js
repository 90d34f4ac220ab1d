// Draws lines over time as inline SVG: samples in; a picture with its numbers in words out.
import { s } from "./dom.js";

/** `lines` are lists of numbers or null, of one length each; all share one scale. */
export function chart(label, lines) {
  const top = Math.max(1e-9, ...lines.flat().filter((value) => value !== null && Number.isFinite(value)));
  const length = Math.max(2, ...lines.map((line) => line.length));
  const kinds = ["", ".second", ".third"];
  return s("svg.chart", { viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("line", { x1: 0, y1: 29.5, x2: 100, y2: 29.5 }),
    lines.map((line, index) => s(`path${kinds[index] ?? ""}`, { d: path(line, length, top) })));
}

function path(line, length, top) {
  let drawn = "";
  let isDown = false;
  line.forEach((value, index) => {
    if (value === null || !Number.isFinite(value)) { isDown = false; return; }
    const x = ((length - line.length + index) / (length - 1)) * 100;
    const y = 29 - (value / top) * 27;
    drawn += `${isDown ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`;
    isDown = true;
  });
  return drawn || "M0 29";
}
