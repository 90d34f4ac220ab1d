// Makes a form from a JSON Schema: a schema in; fields, and the value that they hold, out.
import { h, labelled } from "./dom.js";

/** {element, value(): the value or undefined, errors: what it says before it is sent}. */
export function form(schema, label, path = "") {
  return field(schema ?? {}, label, path, schema ?? {}, 0);
}

function field(schema, label, path, root, depth) {
  const known = resolved(schema, root, depth);
  const type = Array.isArray(known.type) ? known.type.find((one) => one !== "null") : known.type;
  if (known.const !== undefined) return fixed(known.const, label);
  if (known.enum) return chosen(known, label);
  if (depth < 6 && (type === "object" || (known.properties && !type))) return object(known, label, path, root, depth);
  if (type === "boolean") return checked(known, label);
  if (type === "integer" || type === "number") return typed(known, label, "number", (text) => (text === "" ? undefined : Number(text)));
  if (type === "string") return typed(known, label, "text", (text, touched) => (touched ? text : undefined));
  if (depth < 6 && type === "array" && known.items && typeof known.items === "object") return array(known, label, path, root, depth);
  return raw(known, label);
}

function resolved(schema, root, depth) {
  if (typeof schema === "boolean") return {};
  if (!schema.$ref?.startsWith("#/") || depth > 6) return schema;
  const found = schema.$ref.slice(2).split("/").reduce((at, part) => at?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  return typeof found === "object" && found ? found : schema;
}

const hint = (schema) => (schema.description ? h("span.faint", schema.description) : null);

function fixed(value, label) {
  return { element: h("div.field", label, h("code", JSON.stringify(value))), value: () => value };
}

function chosen(schema, label) {
  const control = h("select", h("option", { value: "" }, "–"), schema.enum.map((value, index) => h("option", { value: index }, JSON.stringify(value))));
  if (schema.default !== undefined) control.value = schema.enum.findIndex((value) => value === schema.default);
  return { element: labelled(label, control, hint(schema)), value: () => (control.value === "" ? undefined : schema.enum[control.value]) };
}

function checked(schema, label) {
  const control = h("select", ["", "true", "false"].map((value) => h("option", { value }, value || "–")));
  if (schema.default !== undefined) control.value = String(schema.default);
  return { element: labelled(label, control, hint(schema)), value: () => (control.value === "" ? undefined : control.value === "true") };
}

function typed(schema, label, type, read) {
  let touched = schema.default !== undefined;
  const control = h("input", { type, step: schema.type === "integer" ? 1 : "any", value: schema.default ?? "", placeholder: schema.examples?.[0] ?? null, autocomplete: "off" });
  control.addEventListener("input", () => { touched = true; });
  return { element: labelled(label, control, hint(schema)), value: () => read(control.value, touched) };
}

function object(schema, label, path, root, depth) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).map(([name, inner]) => {
    const made = field(inner, `${name}${required.has(name) ? "" : " (optional)"}`, `${path}/${name}`, root, depth + 1);
    return [name, made, required.has(name)];
  });
  const inside = fields.length > 0 ? fields.map(([, made]) => made.element) : h("span.faint", "It takes no fields.");
  const element = depth === 0 && label === null ? h("div.field", inside) : h("fieldset", h("legend", label ?? "params"), hint(schema), inside);
  const value = () => {
    const entries = fields.map(([name, made]) => [name, made.value()]).filter(([, held]) => held !== undefined);
    const isEmpty = entries.length === 0 && depth > 0 && label?.endsWith("(optional)");
    return isEmpty ? undefined : Object.fromEntries(entries);
  };
  return { element, value };
}

function array(schema, label, path, root, depth) {
  const items = [];
  const place = h("div");
  const add = () => {
    const item = field(schema.items, `item ${items.length + 1}`, `${path}/${items.length}`, root, depth + 1);
    items.push(item);
    place.append(item.element);
  };
  for (let index = 0; index < Math.min(schema.minItems ?? 0, 10); index += 1) add();
  const drop = () => items.pop()?.element.remove();
  const element = h("fieldset", h("legend", label), hint(schema), place,
    h("div.row", h("button", { type: "button", onclick: add }, "Add an item"), h("button", { type: "button", onclick: drop }, "Remove the last")));
  const value = () => {
    const held = items.map((item) => item.value()).filter((one) => one !== undefined);
    return held.length === 0 && label.endsWith("(optional)") ? undefined : held;
  };
  return { element, value };
}

/** What no field fits: JSON. */
function raw(schema, label) {
  const control = h("textarea", { rows: 4, spellcheck: "false", value: schema.default === undefined ? "" : JSON.stringify(schema.default) });
  const value = () => {
    if (control.value.trim() === "") return undefined;
    try { return JSON.parse(control.value); } catch (error) { throw new Error(`${label ?? "params"}: ${error.message}`); }
  };
  return { element: labelled(`${label ?? "params"}, as JSON`, control, hint(schema)), value };
}
