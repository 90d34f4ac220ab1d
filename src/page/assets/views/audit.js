// The view Audit: records, newest first and filtered; the check of their chain; all of them as a file.
import { button, h, labelled, put, say } from "../dom.js";
import { List } from "../list.js";
import { download, get } from "../link.js";
import { didOf } from "../names.js";
import { day, did, number, pill, tree } from "../text.js";

const KINDS = ["capability_schema_violation", "drift", "denied", "binding_mismatch", "duplicate_result", "late_result", "interrupted", "raw_result", "configuration_reloaded", "operator", "audit_lost", "audit_pruned", "audit_replaced", "state_restored", "split_identity", "fleet_refused"];
const AGES = { "": 0, "last hour": 36e5, "last day": 864e5, "last week": 6048e5 };

export function audit(place, { rest }) {
  const kind = h("select", h("option", { value: "" }, "any"), KINDS.map((name) => h("option", { value: name }, name)));
  const age = h("select", Object.keys(AGES).map((name) => h("option", { value: name }, name || "any")));
  const capability = h("input", { type: "search", placeholder: "org.example.echo or org.example.*", autocomplete: "off" });
  const peer = h("input", { type: "search", placeholder: "a name, or did:key:z6Mk…", autocomplete: "off" });
  const count = h("p.faint", { role: "status", id: "count" });
  const verdict = h("p", { role: "status", id: "chain" });
  const detail = h("div", { "aria-live": "polite", id: "record" });
  let records = [];
  let before = null;
  let epoch = 0;
  let loading = false;
  const list = new List({
    label: "Audit records, newest first",
    empty: "No record matches.",
    link: (row) => `#/audit/${row.seq}`,
    more: () => { if (!loading && before) load(); },
    columns: [
      { name: "Place", width: "5rem", cell: (row) => row.seq, minor: true },
      { name: "When", width: "13rem", cell: (row) => h("span.mono", day(row.record.ts)) },
      { name: "Kind", width: "minmax(9rem, 14rem)", cell: (row) => row.record.kind },
      { name: "Capability", width: "minmax(8rem, 1fr)", cell: (row) => row.record.capabilityName ?? row.record.action ?? "", minor: true },
      { name: "Peer", width: "minmax(8rem, 1fr)", cell: (row) => did(row.record.peerId), minor: true },
    ],
  });
  const load = async () => {
    const mine = epoch;
    loading = true;
    try {
      const since = AGES[age.value] ? Date.now() - AGES[age.value] : "";
      const told = await get("/data/audit", { before: before ?? "", kind: kind.value, since_ms: since, capability: capability.value.trim(), peer: didOf(peer.value.trim()) });
      if (mine !== epoch) return;
      before = told.before ?? null;
      records = [...records, ...told.records.map((row) => ({ ...row, key: row.seq }))];
      list.set(records);
      put(count, `${number(records.length)} records shown of ${number(told.head)}`, told.lost > 0 && pill(`${told.lost} lost`, "bad"));
      open(rest[0]);
    } catch (error) {
      if (mine === epoch) put(count, error.message);
    } finally {
      if (mine === epoch) loading = false;
    }
    if (mine === epoch && before && records.length < 50) load();
  };
  const again = () => { epoch += 1; records = []; before = null; load(); };
  const open = (seq) => {
    const row = records.find((one) => String(one.seq) === seq);
    if (row) put(detail, h("h2", `Record ${row.seq}`), h("p.mono.faint.wrap", row.hash), tree(row.record));
  };
  for (const control of [kind, age, capability, peer]) control.addEventListener("change", again);
  put(place,
    h("form.row", { role: "search", "aria-label": "Filter records", onsubmit: (event) => { event.preventDefault(); again(); } },
      labelled("Kind", kind), labelled("Age", age), labelled("Capability", capability), labelled("Peer", peer)),
    h("div.row", button("Check the chain", async () => {
      const told = await get("/data/audit/check");
      put(verdict, told.ok ? [pill("intact", "good"), ` ${number(told.records)} records${told.pruned ? `, ${told.pruned} pruned` : ""}. Its end is `, h("span.mono.wrap", `${told.head.seq}:${told.head.hash ?? ""}`)]
        : [pill("broken", "bad"), ` at ${told.seq}: ${told.what}`]);
    }), button("Export", async () => {
      const url = URL.createObjectURL(await download("/data/audit/export"));
      const link = h("a", { href: url, download: "capd-audit.jsonl" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
      say("The export is downloaded.");
    })), verdict, count, list.element, detail);
  load();
  return () => list.close();
}
