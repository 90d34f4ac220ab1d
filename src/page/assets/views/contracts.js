// The view Contracts: which versions fit together and why not, what the agent requires, and alarms of drift.
import { h, labelled, loading, put, table } from "../dom.js";
import { get } from "../link.js";
import { day, did, pill, tree } from "../text.js";

const SIGNS = { full: ["fits", "good"], partial: ["partly", "odd"], unknown: ["unknown", ""], incompatible: ["breaks", "bad"] };

export function contracts(place, { rest }) {
  const names = h("datalist", { id: "names" });
  const name = h("input", { type: "search", list: "names", value: rest[0] ?? "", placeholder: "org.example.echo", autocomplete: "off" });
  const found = h("div");
  const show = () => {
    const wanted = name.value.trim().split(":")[0];
    if (!wanted) return put(found, h("p.faint", "Name a capability to compare its versions."));
    history.replaceState(null, "", `#/contracts/${encodeURIComponent(wanted)}`);
    return put(found, loading(get(`/data/contracts/${encodeURIComponent(wanted)}`), matrix));
  };
  name.addEventListener("change", show);
  get("/data/capabilities", { limit: 1000 }).then(({ capabilities }) => {
    put(names, [...new Set(capabilities.map((offer) => offer.id.split(":")[0]))].map((known) => h("option", { value: known })));
  }, () => {});
  put(place,
    h("form.row", { role: "search", "aria-label": "Choose a capability", onsubmit: (event) => { event.preventDefault(); show(); } }, labelled("Capability", name), names),
    h("h2", "Versions"), found,
    h("h2", "What the agent requires"), loading(get("/data/requires"), requires),
    h("h2", "Alarms of drift"), loading(get("/data/audit", { kind: "drift" }), alarms));
  show();
  return null;
}

function label({ id, source }, versions) {
  const version = id.split(":")[1];
  return versions.filter((other) => other.id === id).length > 1 ? `${version} ${source.slice(-6)}` : version;
}

function matrix({ versions, cells }) {
  const detail = h("div", { "aria-live": "polite" });
  const grid = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Matrix of versions" }, h("table.matrix",
    h("thead", h("tr", h("th", { scope: "col" }, "caller ↓ provider →"), versions.map((version) => h("th", { scope: "col" }, label(version, versions))))),
    h("tbody", cells.map((row, caller) => h("tr", h("th", { scope: "row" }, label(versions[caller], versions)),
      row.map((cell, provider) => {
        const [word, kind] = SIGNS[cell.verdict];
        const made = h(`button.${kind || "plain"}`, { type: "button", "aria-label": `a caller of ${label(versions[caller], versions)} with a provider of ${label(versions[provider], versions)}: ${word}` }, word);
        made.addEventListener("click", () => put(detail, difference(versions[caller], versions[provider], cell, cells[provider][caller])));
        return h("td", made);
      }))))));
  return [grid, h("p.faint", "Choose a cell to see what breaks, with a payload that shows it."), detail];
}

function difference(caller, provider, forth, back) {
  return h("div.split", { id: "difference" }, direction(`A caller of ${caller.id} with a provider of ${provider.id}`, forth),
    direction(`A caller of ${provider.id} with a provider of ${caller.id}`, back));
}

function direction(title, found) {
  const [word, kind] = SIGNS[found.verdict];
  return h("section", { "aria-label": title }, h("h3.wrap", title, " ", pill(word, kind)),
    ["requests", "results"].map((name) => side(name, found[name])));
}

function side(name, outcome) {
  if (outcome.verdict === "full") return h("p", `${name}: every payload fits.`);
  if (outcome.verdict === "unknown") return h("p", `${name}: not decided at ${outcome.path}: ${outcome.reason}`);
  const lost = outcome.lost ?? [{ path: outcome.path, message: `refused by ${outcome.rule}`, refuted: outcome }];
  return h("div", h("p", `${name}:`), h("ul", lost.map((item) => h("li.wrap", h("code", item.path), ` ${item.message}`,
    item.refuted?.witness !== undefined && h("details", { open: true }, h("summary", "A payload that breaks"), h("pre", { tabindex: "0" }, JSON.stringify(item.refuted.witness, null, 2)))))));
}

function requires({ requires: all }) {
  if (all.length === 0) return h("p", "Nothing: capabilities.yaml has no list ", h("code", "requires"), ", so no call is proven before it is sent.");
  const kinds = { proven: "good", unproven: "odd", undecided: "", refused: "bad" };
  const rows = all.flatMap((one) => (one.providers.length === 0 ? [[h("span.mono", one.requirement), "nobody", pill("not served", "bad"), ""]]
    : one.providers.map((provider) => [h("span.mono", one.requirement), [h("span.mono", provider.id), " ", did(provider.provider)],
      pill(provider.state, kinds[provider.state]), provider.findings.length > 0 && tree(provider.findings)])));
  return [table("Requirements", ["Requirement", "Provider", "State", "Findings"], rows),
    h("p.faint", "Undecided: the first call fetches the schemas and has them proven before it is sent.")];
}

function alarms({ records }) {
  if (records.length === 0) return h("p", "None among the newest audit records.");
  return table("Drift", ["When", "Capability", "Provider", "Code", "Findings"], records.slice(0, 50).map(({ record }) =>
    [day(record.ts), record.capabilityName, did(record.peerId), record.code, tree(record.findings ?? [])]));
}
