// The view Calls: every call that the sidecar knows, live, newest first, filtered; one call with its timeline.
import { h, labelled, put } from "../dom.js";
import { List } from "../list.js";
import { get, on } from "../link.js";
import { didOf } from "../names.js";
import { did, ms, number, outcome, pill, time } from "../text.js";
import { call } from "./call.js";

/** Calls that the browser keeps; older ones are read again when the filter changes. */
const KEPT = 20000;
const PAGE = 1000;

export function calls(place, { rest, parameters }) {
  if (rest.length > 0) return call(place, rest[0]);
  const filters = {
    role: choice("Role", [["", "made and served"], ["made", "made here"], ["served", "served here"]]),
    outcome: choice("Outcome", [["", "any"], ["running", "running"], ["success", "success"], ["failed", "failed"], ["refused", "refused"]]),
    capability: input("Capability", "org.example.echo"),
    peer: input("Peer", "a name, a DID, or its end"),
    since: choice("Age", [["", "any"], ["1m", "last minute"], ["15m", "last 15 minutes"], ["1h", "last hour"], ["24h", "last day"]]),
  };
  for (const [name, field] of Object.entries(filters)) field.control.value = parameters.get(name) ?? "";
  const count = h("p.faint", { role: "status", id: "count" });
  const known = new Map();
  let order = [];
  let cursor = null;
  let loading = false;
  let epoch = 0;

  const list = new List({
    label: "Calls, newest first",
    empty: "No call matches.",
    link: (row) => `#/calls/${row.id}`,
    more: () => more(),
    columns: [
      { name: "Made", width: "7.5rem", cell: (row) => h("span.mono", time(row.made_at_ms)), minor: true },
      { name: "Capability", width: "minmax(10rem, 2fr)", cell: (row) => row.capability ?? "" },
      { name: "Outcome", width: "minmax(7.5rem, 10rem)", cell: (row) => { const { word, kind } = outcome(row); return pill(word, kind); } },
      { name: "Took", width: "5rem", cell: (row) => row.finished_at_ms ? ms(Math.max(0, row.finished_at_ms - row.made_at_ms)) : "", minor: true },
      { name: "Role", width: "5rem", cell: (row) => (row.role === "caller" ? "made" : "served") },
      { name: "With", width: "minmax(8rem, 1fr)", cell: (row) => did(row.role === "caller" ? row.peer : row.from) },
      { name: "Id", width: "minmax(5rem, 1fr)", cell: (row) => h("span.mono.faint", row.id), minor: true },
    ],
  });

  const matches = (row) => {
    const { word } = outcome(row);
    const wanted = filters.outcome.control.value;
    if (wanted === "running" && row.state === "finished") return false;
    if (wanted === "success" && row.status !== "success") return false;
    if (wanted === "failed" && row.status !== "error") return false;
    if (wanted === "refused" && !word.startsWith("refused")) return false;
    if (filters.role.control.value === "made" && row.role !== "caller" && row.from !== own) return false;
    if (filters.role.control.value === "served" && row.role !== "executor") return false;
    const name = filters.capability.control.value.trim();
    if (name && row.capability !== name && row.capability?.split(":")[0] !== name) return false;
    const peer = didOf(filters.peer.control.value.trim());
    if (peer && ![row.from, row.peer].some((text) => text && (text === peer || (peer.length >= 6 && text.endsWith(peer))))) return false;
    return true;
  };
  let own = "";
  get("/data/self").then((self) => { own = self.did; }, () => {});

  const show = () => {
    order = [...known.values()].filter(matches).sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : a.role < b.role ? 1 : -1));
    list.set(order);
    put(count, `${number(order.length)} calls${cursor ? ", and older ones that are read as you scroll" : ""}`);
  };
  const take = (found) => {
    for (const row of found) {
      row.key = `${row.id}-${row.role}-${row.from}`;
      known.set(row.key, row);
    }
    if (known.size > KEPT) {
      const oldest = [...known.keys()].sort().slice(0, known.size - KEPT);
      for (const key of oldest) known.delete(key);
    }
  };
  const page = async () => {
    const mine = epoch;
    loading = true;
    try {
      const told = await get("/data/calls", {
        limit: PAGE, cursor, role: filters.role.control.value, capability: filters.capability.control.value.trim(),
        since: filters.since.control.value, state: { running: "running", "": "" }[filters.outcome.control.value] ?? "finished",
      });
      if (mine !== epoch) return;
      cursor = told.next_cursor ?? null;
      take(told.calls);
      show();
    } catch (error) {
      if (mine === epoch) put(count, error.message);
    } finally {
      if (mine === epoch) loading = false;
    }
  };
  const more = () => { if (!loading && cursor && known.size < KEPT) page(); };
  const again = () => {
    epoch += 1;
    known.clear();
    cursor = null;
    const query = new URLSearchParams(Object.entries(filters).map(([name, field]) => [name, field.control.value.trim()]).filter(([, value]) => value));
    history.replaceState(null, "", query.size ? `#/calls?${query}` : "#/calls");
    page();
  };
  for (const { control } of Object.values(filters)) control.addEventListener("change", again);
  put(place,
    h("form.row", { role: "search", "aria-label": "Filter calls", onsubmit: (event) => { event.preventDefault(); again(); } },
      Object.values(filters).map((field) => field.element)),
    count, list.element);
  page();

  let waiting = 0;
  const stop = on("calls", ({ calls: changed }) => {
    const since = filters.since.control.value;
    const floor = since ? Date.now() - { "1m": 6e4, "15m": 9e5, "1h": 36e5, "24h": 864e5 }[since] : 0;
    take(changed.filter((row) => row.made_at_ms >= floor));
    // A burst of events is one drawing.
    if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; show(); });
  });
  return () => { stop(); list.close(); cancelAnimationFrame(waiting); };
}

function choice(name, options) {
  const control = h("select", options.map(([value, label]) => h("option", { value }, label)));
  return { control, element: labelled(name, control) };
}

function input(name, placeholder) {
  const control = h("input", { type: "search", placeholder, autocomplete: "off", spellcheck: "false" });
  return { control, element: labelled(name, control) };
}
