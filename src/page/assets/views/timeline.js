// The timeline of one call: what it waited for as bars, and its tries as a table.
import { facts, h, s, table } from "../dom.js";
import { did, ms, pill } from "../text.js";

/** What each phase waits for, as docs/operations.md has it. */
const WAITS = {
  admit: "signature, permissions and limits",
  choose: "a provider that serves it",
  gate: "proof that the schemas fit",
  journal: "its row on disk",
  queue: "a link, a signature, or the next try",
  wire: "the answer of the provider's sidecar",
  provider: "the provider's answer",
  result: "the check of the result",
};
const KINDS = { success: "good", refused: "odd", unanswered: "odd", error: "bad", lost: "bad" };

/** `told` is what the sidecar kept; nothing is made up where it kept nothing. */
export function timeline(told, made) {
  if (!told) {
    return h("p.faint", "The sidecar kept no timeline of this call: it came before a restart, with more than 500 others in its second, or is no longer among the last 1,024.");
  }
  // A call that runs is drawn to this moment.
  const soFar = told.took_us ?? (Date.now() - told.came_at_ms) * 1000;
  const all = Math.max(1, soFar, ...told.phases.map((phase) => phase.end_us ?? phase.begin_us), ...told.tries.map((one) => one.end_us ?? one.begin_us));
  const copies = [
    told.joined ? `${told.joined} joined while it ran` : null,
    told.replays ? `${told.replays} got the recorded result` : null,
  ].filter(Boolean).join(", ");
  return [
    h("ol.spans", { "aria-label": "Phases" }, told.phases.map((phase) => span(phase, all))),
    told.tries.length > 0 && table(made ? "Copies sent to peers" : "Copies given to local providers", ["Try", "Began", "Took", "Outcome", "Peer", "Link"], told.tries.map((one, index) => [
      String(index + 1),
      time(one.begin_us),
      one.end_us === undefined ? "so far" : time(one.end_us - one.begin_us),
      pill([one.outcome ?? "in flight", one.code].filter(Boolean).join(" "), KINDS[one.outcome] ?? ""),
      one.peer ? did(one.peer) : "local provider",
      h("span.mono", one.link ?? ""),
    ])),
    told.tries_omitted ? h("p.faint", `${told.tries_omitted} further tries are not kept.`) : null,
    facts([
      ["took", told.took_us === undefined ? "so far" : time(told.took_us)],
      ["came on", told.link && h("span.mono", told.link)],
      ["copies", copies],
      ["trace", [h("span.mono.wrap", told.trace), told.sampled ? "" : " (its spans are not exported)"]],
    ]),
  ];
}

function span(phase, all) {
  const end = phase.end_us ?? all;
  const took = phase.end_us === undefined ? "so far" : time(phase.end_us - phase.begin_us);
  // A phase that is too short to see has a line of its own.
  const width = Math.max(0.4, ((end - phase.begin_us) / all) * 100);
  const x = Math.min(100 - width, (phase.begin_us / all) * 100);
  return h("li", h("b", phase.name), h("span.number", took),
    s("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("line", { x1: 0, y1: 4, x2: 100, y2: 4 }),
      s(phase.end_us === undefined ? "rect.now" : "rect", { x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 8 })),
    h("span.faint", WAITS[phase.name] ?? ""));
}

/** Microseconds, as times are written here. */
function time(us) {
  return ms(us / 1000);
}
