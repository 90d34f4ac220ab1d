// The view Policy: why a caller may or may not call something, step by step; the rules; what is wrong with them.
import { button, h, labelled, loading, put, say, table } from "../dom.js";
import { act, get } from "../link.js";
import { didOf, nameOf } from "../names.js";
import { reloaded } from "./configuration.js";
import { pill } from "../text.js";

export function policy(place, { parameters }) {
  const rules = h("div");
  const load = () => put(rules, loading(get("/data/policy"), show));
  put(place, h("h2", "Why?"), why(parameters), h("h2", "Rules in force"),
    h("p", button("Reload the policy", async () => {
      const told = await act("/act/reload");
      say(reloaded(told));
      load();
    })), rules);
  load();
  return null;
}

function why(parameters) {
  const field = (label, name, placeholder, list) => {
    const control = h("input", { type: "text", name, value: parameters.get(name) ?? "", placeholder, list, autocomplete: "off", spellcheck: "false", size: 34 });
    return [control, labelled(label, control)];
  };
  const callers = h("datalist", { id: "callers" });
  const names = h("datalist", { id: "served" });
  const [caller, callerField] = field("Caller", "caller", "a name, or did:key:z6Mk…", "callers");
  const [capability, capabilityField] = field("Capability", "capability", "org.example.echo", "served");
  const [provider, providerField] = field("Provider", "provider", "this sidecar", "callers");
  const told = h("div", { "aria-live": "polite" });
  get("/data/overview").then(({ now }) => put(callers, (now?.peers ?? []).map((peer) => h("option", { value: nameOf(peer.did) ?? peer.did }))), () => {});
  get("/data/self").then((self) => put(names, [...new Set(self.capabilities.map((id) => id.split(":")[0]))].map((name) => h("option", { value: name }))), () => {});
  const ask = (event) => {
    event?.preventDefault();
    const asked = { caller: caller.value.trim(), capability: capability.value.trim(), provider: provider.value.trim() };
    const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
    history.replaceState(null, "", `#/policy?${query}`);
    const dids = { ...asked, caller: didOf(asked.caller), provider: didOf(asked.provider) };
    put(told, loading(Promise.all([get("/data/policy/why", dids), get("/data/policy"), get("/data/overview")]),
      ([{ decisions }, { rules }, { now }]) => steps(dids, decisions, rules, now?.peers ?? [])));
  };
  if (caller.value && capability.value) ask();
  return [h("form.row", { onsubmit: ask }, callerField, capabilityField, providerField, callers, names, h("button.main", { type: "submit" }, "Explain")), told];
}

function steps(asked, decisions, rules, peers) {
  const peer = peers.find((one) => one.did === asked.caller);
  const step = (state, name, ...text) => h(`li.${state}`, h("b", name), h("span.wrap", text));
  const versions = decisions.filter((one) => one.capability.includes(":")).map((one) => one.capability);
  return h("div", { id: "why" }, h("ol.steps",
    step(peer ? "done" : "now", "who", peer ? `a peer, ${peer.state}` : "no peer of this sidecar that is known now: it is decided on by its DID alone"),
    step(versions.length > 0 ? "done" : "now", "what", versions.length > 0 ? `served as ${[...new Set(versions)].join(", ")}` : "nothing of this name is served there: it is decided on by its name alone"),
    decisions.map((one) => [
      step(one.rules.length > 0 ? (one.allowed ? "done" : "failed") : "failed", `${one.action} ${one.capability.split(":")[1] ?? "by name"}`,
        pill(one.allowed ? "allowed" : "denied", one.allowed ? "good" : "bad"), ` ${one.reason}`,
        one.missing.length > 0 && h("p", "Grant what is missing: ", h("code", `@permissions("${one.missing.join(" ")}")`)),
        one.rules.map((id) => text(rules.find((rule) => rule.id === id))),
        !one.allowed && one.rules.length === 0 && h("p", "Nobody may do what no rule permits. Add a grant to capd.toml:",
          h("pre", `[[allow]]\ncallers = ["${asked.caller}"]\ncapabilities = ["${asked.capability}"]`)))])));
}

const text = (rule) => rule && h("details", h("summary", `${rule.id}, from ${rule.origin}`), h("pre", { tabindex: "0" }, rule.policy));

function show({ rules, warnings, unused, overruled }) {
  return [
    warnings.length > 0 && [h("h3", "Likely mistakes"), h("ul.notes", warnings.map((one) => h("li.odd", h("span.then", one))))],
    overruled.length > 0 && [h("h3", "Rules that contradict each other"), table("Contradictions", ["Capability", "Caller", "Permitted by", "Forbidden by, which wins"],
      overruled.map((one) => [h("span.mono", one.capability), h("span.mono", one.caller), one.permits.join(", "), one.forbids.join(", ")]))],
    unused.length > 0 && [h("h3", "Rules that decide nothing"), h("p", "No caller that the rules tell apart, and nothing that is served here, is decided on by: ", h("code", unused.join(", ")))],
    h("p.faint", `${rules.length} rules`),
    table("Rules", ["Rule", "From", "Policy"], rules.map((rule) => [h("span.mono", rule.id), rule.origin, h("pre", { tabindex: "0" }, rule.policy)])),
  ];
}
