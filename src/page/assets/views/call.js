// One call: its steps, where its time went, what is known beside, and its cancel.
import { button, facts, h, put, say } from "../dom.js";
import { act, get, on } from "../link.js";
import { bytes, day, did, ms, outcome, pill, tree } from "../text.js";
import { timeline } from "./timeline.js";

export function call(place, id) {
  const body = h("div");
  put(place, h("p", h("a", { href: "#/calls" }, "All calls")), h("h2.mono.wrap", id), body);
  let isOver = false;
  const load = async () => {
    try {
      const told = await get(`/data/calls/${id}`);
      isOver = told.state === "finished" && (told.known ?? []).every((row) => row.state === "finished");
      put(body, (told.known ?? []).map(side), answer(told),
        !isOver && h("p", button("Cancel this call", async () => {
          await act("/act/cancel", { call: id });
          say("The call is asked to end.");
          load();
        }, "danger")));
    } catch (error) {
      put(body, h("p.pill.bad", error.message));
    }
  };
  load();
  return on("overview", () => { if (!isOver) load(); });
}

function side(row) {
  const { word, kind } = outcome(row);
  const made = row.role === "caller";
  return h("section", { "aria-label": made ? "The agent's side" : "The provider's side" },
    h("h3", made ? "Made by this sidecar's agent " : "Served by this sidecar ", pill(word, kind)),
    h("ol.steps", { "data-role": row.role }, steps(row).map((step) =>
      h(`li.${step.state}`, h("b", step.name), h("span", step.text)))),
    h("h4", "Where its time went"), timeline(row.timeline, made),
    facts([
      ["capability", h("span.mono", row.capability ?? "not known yet")],
      ["from", did(row.from)],
      [made ? "given to" : null, made ? did(row.peer) : null],
      ["made", day(row.made_at_ms)],
      ["time ends", day(row.deadline_at_ms)],
      ["result", row.bytes === undefined ? null : bytes(row.bytes)],
      ["waiting callers", row.waiters ? String(row.waiters) : null],
      ["in the journal", row.journaled ? "yes" : "no"],
      ["known until", day(row.expires_at_ms)],
    ].filter(([name]) => name)));
}

/** The steps of a call. A time that was not kept is not made up. */
function steps(row) {
  const from = row.made_at_ms;
  const since = (at) => (at ? `after ${ms(Math.max(0, at - from))}` : "");
  const ended = row.state === "finished";
  const { word } = outcome(row);
  const refused = ended && !row.status && row.code;
  const step = (name, isDone, text, isNow = false) => ({ name, text, state: isDone ? "done" : isNow ? "now" : "open" });
  const end = { name: "result", text: ended ? `${word} ${since(row.finished_at_ms)}` : "not yet", state: ended ? (row.status === "success" ? "done" : "failed") : "open" };
  if (row.role === "caller") {
    const sent = row.state === "sent" || (ended && !refused);
    return [
      step("choose", Boolean(row.peer) || sent, row.peer ? ["gave it to ", did(row.peer)] : "no provider was chosen", row.state === "waiting"),
      step("journal", row.journaled, row.journaled ? "the receiver is written down: the call runs at most once" : "not needed: idempotent, or not sent"),
      step("send", sent, sent ? "the provider's sidecar has it" : "not sent", row.state === "waiting"),
      end,
    ];
  }
  const started = Boolean(row.started_at_ms) || (ended && !refused);
  return [
    step("accept", true, "signature, policy, schema and limits passed"),
    step("journal", row.journaled, row.journaled ? "written before the provider sees it" : "not needed: the capability is idempotent", row.state === "accepted"),
    step("provider", started && ended, row.started_at_ms ? `has it ${since(row.started_at_ms)}` : started ? "had it" : "not yet", row.state === "executing"),
    end,
  ];
}

function answer(told) {
  if (told.result !== undefined) return h("section", h("h3", "Result"), tree(told.result));
  if (told.error) {
    const { code, title, detail, outcome: effect, details } = told.error;
    return h("section", h("h3", "Error"),
      facts([["code", `${code} ${title}`], ["what", detail], ["effect", effect], ["details", details && tree(details)]]));
  }
  return null;
}
