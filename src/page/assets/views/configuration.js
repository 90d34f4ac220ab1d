// The view Configuration: what runs, what the file would change, and what can be done about it.
import { button, h, labelled, loading, put, say, table } from "../dom.js";
import { act, get } from "../link.js";
import { pill } from "../text.js";

const TAKES = { now: ["now", "good"], "new-links": ["for new links", "good"], restart: ["with a restart", "odd"] };

export function configuration(place) {
  const only = h("input", { type: "checkbox" });
  const levels = h("input", { type: "text", value: "info", autocomplete: "off", spellcheck: "false", placeholder: "capd::net=debug,info" });
  const keys = h("div");
  const load = () => put(keys, loading(get("/data/configuration"), (told) => show(told, only.checked)));
  only.addEventListener("change", load);
  put(place, h("h2", "Do something"),
    h("p", "Each of these is written to the audit log."),
    h("div.row", button("Reload the file", async () => {
      const told = await act("/act/reload");
      say(reloaded(told));
      load();
    }, "main"), labelled("Levels of the log", levels), button("Log by these levels", async () => {
      const told = await act("/act/log", { levels: levels.value.trim() });
      say(`The sidecar logs by ${told.levels} until the next reload.`);
    }), drain()),
    h("p.faint", "A drained sidecar takes no new calls, lets those in flight end, and stays so until it is started again."),
    h("div.row", labelled("Only keys that are set", only)), keys);
  load();
  return null;
}

// There is no way back but a restart, so one click alone does nothing.
function drain() {
  let isMeant = false;
  return button("Drain", async (made) => {
    if (!isMeant) {
      isMeant = true;
      made.textContent = "Drain: take no new calls until a restart";
      say("Press it again to drain the sidecar.");
      return;
    }
    const told = await act("/act/drain");
    const left = told.made + told.executing;
    say(left === 0 ? "The sidecar is drained: no calls are in flight. Stop it when you like."
      : `The sidecar drains: ${left} calls are in flight, ${told.executing} of them executed here. Press again to see what is left.`);
  });
}

export function reloaded(told) {
  if (told.applied) return `${told.changes.length + told.omitted} changes applied, ${told.rules} rules are in force.`;
  const keys = told.changes.filter((change) => change.takes === "restart").map((change) => change.key);
  return `Nothing is changed: ${keys.join(", ")} can change only with a restart.`;
}

function show({ keys, difference, fault }, isOnly) {
  const shown = keys.filter((key) => !isOnly || key.origin !== "default");
  return [
    h("h2", "The file against what runs"),
    fault ? h("ul.notes", { id: "mistakes" }, fault.split("\n").map((mistake) => h("li.bad", h("span.then", mistake)))) : changes(difference),
    h("h2", "What runs"),
    table("Running configuration", ["Key", "Value", "From"], shown.map((key) => [h("span.mono.wrap", key.key), h("span.mono.wrap", key.value), key.origin === "default" ? pill("default") : key.origin])),
  ];
}

function changes(told) {
  const warnings = told.warnings.length > 0 && h("ul.notes", told.warnings.map((one) => h("li.odd", h("span.then", one))));
  if (told.changes.length === 0) return [h("p", { id: "same" }, "The file and the running configuration are the same."), warnings];
  return [table("Differences", ["Key", "Runs", "File", "Takes effect"], told.changes.map((change) => [h("span.mono.wrap", change.key),
    h("span.mono.wrap", change.from ?? "–"), h("span.mono.wrap", change.to ?? "–"), pill(...TAKES[change.takes])])),
  told.omitted > 0 && h("p", `and ${told.omitted} more`), warnings];
}
