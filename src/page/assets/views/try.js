// Try it: a form from the input schema, the call, its events and result, and the same call for a terminal or a program.
import { button, copier, h, labelled, put, say } from "../dom.js";
import { form } from "../form.js";
import { call } from "../link.js";
import { facts } from "../dom.js";
import { pill, tree } from "../text.js";

export function attempt(told) {
  const fields = form(told.input?.schema, null);
  const raw = h("textarea", { rows: 6, spellcheck: "false", "aria-label": "Params as JSON" });
  const asJson = h("input", { type: "checkbox" });
  const timeout = h("input", { type: "text", placeholder: "30s", size: 6 });
  const key = h("input", { type: "text", placeholder: "none", autocomplete: "off" });
  const made = h("div", { "aria-live": "polite" });
  const holder = h("div", fields.element);
  const params = () => {
    if (!asJson.checked) return fields.value() ?? null;
    try { return JSON.parse(raw.value || "null"); } catch (error) { throw new Error(`The params are no JSON: ${error.message}`); }
  };
  asJson.addEventListener("change", () => {
    // What no field can hold yet is no reason to keep somebody from writing JSON.
    if (asJson.checked) { try { raw.value = JSON.stringify(fields.value() ?? null, null, 2); } catch { raw.value = ""; } }
    put(holder, asJson.checked ? raw : fields.element);
  });
  const run = button("Call it", async () => {
    const events = h("ol.steps");
    const ended = h("div");
    put(made, h("h3", "The call"), events, ended);
    const told_ = (name, text, state) => events.append(h(`li.${state}`, h("b", name), h("span.wrap", text)));
    try {
      await call({ capability: told.id, params: params(), timeout: timeout.value.trim(), key: key.value.trim() }, (name, data) => {
        if (name === "result") {
          told_("result", `after ${data.execution_ms ?? "?"} ms at the provider${data.replayed ? ", recorded earlier" : ""}`, "done");
          put(ended, h("h3", "Result ", pill("success", "good")), h("div", { id: "result" }, tree(data.result)));
        } else if (name === "error") {
          told_("error", data.detail, "failed");
          put(ended, h("h3", "Error ", pill(data.outcome, "bad")), facts([["code", `${data.code} ${data.title}`], ["what", data.detail], ["details", data.details && tree(data.details)]]));
        } else if (name === "accepted") {
          told_("accepted", h("a.mono", { href: `#/calls/${data.call}` }, data.call), "done");
        } else {
          told_(name.replace("_", " "), Object.values(data).filter((value) => value !== null).join(" "), "now");
        }
      });
    } catch (error) {
      told_("not called", error.message, "failed");
      say(error.message);
    }
  }, "main");
  const once = told.idempotent ? null : h("p.odd.pill", "This is a real call: it may change something, and it runs at most once.");
  return h("section", { "aria-label": "Try it" }, once, holder,
    h("div.row", labelled("Time limit", timeout), labelled("Idempotency key", key),
      labelled("Write the params as JSON", asJson)),
    h("div.row", run, copier("Copy as capctl", () => capctl(told, params())), copier("Copy as curl", () => curl(told, params())),
      copier("Copy as Python", () => python(told, params()))),
    made);
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function capctl(told, params) {
  return `capctl call ${told.id} --params ${quoted(JSON.stringify(params))}`;
}

export function curl(told, params) {
  return `curl --unix-socket "\${CAPD_SOCKET:-$HOME/.local/state/capd/capd.sock}" --json ${quoted(JSON.stringify(params))} http://localhost/v1/call/${told.id}`;
}

export function python(told, params) {
  const literal = (value) => {
    if (value === null) return "None";
    if (value === true) return "True";
    if (value === false) return "False";
    if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
    if (typeof value === "object") return `{${Object.entries(value).map(([name, held]) => `${JSON.stringify(name)}: ${literal(held)}`).join(", ")}}`;
    return JSON.stringify(value);
  };
  return `import capd\n\nprint(capd.Client().call("${told.name}", ${literal(params)}, version="=${told.version}"))\n`;
}
