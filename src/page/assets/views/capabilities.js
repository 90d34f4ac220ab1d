// The view Capabilities: all that may be called; one of them with its schemas, hashes and providers, and to try it.
import { facts, h, labelled, loading, put, table } from "../dom.js";
import { get } from "../link.js";
import { did, number, pill, tree } from "../text.js";
import { attempt } from "./try.js";

export function capabilities(place, { rest, parameters }) {
  if (rest.length > 0) return one(place, rest[0], parameters.get("try") !== null);
  const words = h("input", { type: "search", value: parameters.get("q") ?? "", placeholder: "a part of its name or description", autocomplete: "off" });
  const found = h("div");
  const search = () => {
    const q = words.value.trim();
    history.replaceState(null, "", q ? `#/capabilities?q=${encodeURIComponent(q)}` : "#/capabilities");
    put(found, loading(everything(q), list));
  };
  words.addEventListener("change", search);
  put(place, h("form.row", { role: "search", "aria-label": "Find capabilities", onsubmit: (event) => { event.preventDefault(); search(); } },
    labelled("Find", words)), found);
  search();
  return null;
}

async function everything(q) {
  const all = [];
  let cursor = "";
  do {
    const page = await get("/data/capabilities", { q, cursor, limit: 1000 });
    all.push(...page.capabilities);
    cursor = page.next_cursor ?? "";
  } while (cursor && all.length < 20000);
  return all;
}

function list(all) {
  const named = new Map();
  for (const offer of all) {
    const key = offer.id;
    if (!named.has(key)) named.set(key, { ...offer, providers: [] });
    named.get(key).providers.push(offer);
  }
  const rows = [...named.values()].slice(0, 2000).map((offer) => [
    h("a.mono", { href: `#/capabilities/${encodeURIComponent(offer.id)}` }, offer.id),
    offer.description ?? "",
    offer.providers.some((provider) => provider.local) ? "this sidecar" : [did(offer.providers[0].provider), offer.providers.length > 1 && ` and ${offer.providers.length - 1} more`],
    [offer.idempotent ? pill("idempotent") : pill("at most once"), isDeprecated(offer) && [" ", pill("deprecated", "odd")]],
  ]);
  return [h("p.faint", { id: "count" }, `${number(named.size)} capabilities`),
    rows.length > 0 ? table("Capabilities", ["Capability", "Description", "Provider", "Calls"], rows)
      : h("p", "Nobody serves anything that matches.")];
}

const isDeprecated = (offer) => (offer.deprecated_ranges?.length ?? 0) > 0 || (offer.deprecated_versions?.length ?? 0) > 0;

function one(place, id, isTried) {
  put(place, h("p", h("a", { href: "#/capabilities" }, "All capabilities")),
    loading(get(`/data/capabilities/${encodeURIComponent(id)}`), (told) => [
      h("h2.mono.wrap", told.id),
      told.description && h("p.wrap", told.description),
      facts([
        ["category", told.category],
        ["runs", told.idempotent ? "again if in doubt: it is idempotent" : "at most once"],
        ["time limit", told.timeout_ms && `${told.timeout_ms} ms`],
        ["permissions", told.permissions?.join(", ")],
        ["since", told.since],
        ["deprecated", [...(told.deprecated_ranges ?? []), ...(told.deprecated_versions ?? [])].join(", ")],
        ["static hash", told.static_hash && h("span.mono", told.static_hash)],
        ["lineage", told.lineage && h("span.mono", told.lineage)],
      ]),
      h("p", h("a", { href: `#/contracts/${encodeURIComponent(told.name)}` }, "Compare its versions"), " · ",
        h("a", { href: `#/policy?capability=${encodeURIComponent(told.name)}` }, "Who may call it"), " · ",
        h("a", { href: `#/calls?capability=${encodeURIComponent(told.id)}` }, "Its calls")),
      h("h2", { id: "try" }, "Try it"), attempt(told),
      h("div.split", schema("Input", told.input), schema("Output", told.output)),
      h("h2", "Providers"),
      table("Providers", ["Provider", "Input", "Output"], told.providers.map((provider) => [
        provider.local ? ["this sidecar ", did(provider.did)] : did(provider.did), hash(provider.input), hash(provider.output)])),
    ]));
  if (isTried) requestAnimationFrame(() => document.getElementById("try")?.scrollIntoView());
  return null;
}

const hash = (side) => (side?.hash ? h("span.mono.wrap", side.hash) : (side?.reason ?? ""));

function schema(title, side) {
  return h("section", { "aria-label": title }, h("h2", title), side?.schema
    ? [h("p.faint.mono.wrap", side.hash), h("details", h("summary", "As JSON"), h("pre", { tabindex: "0" }, JSON.stringify(side.schema, null, 2))), tree(side.schema)]
    : h("p", side?.reason ?? side?.unavailable ?? "no schema"));
}
