// Makes elements: a tag, its attributes and its children in; an element out. Text is only ever text, never markup.

/** A tag may name classes: "p.faint". Attributes named on… are listeners; null, false and undefined are left out. */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElement(name), classes, attributes, children);
}

/** The same for inline SVG. */
export function s(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), classes, attributes, children);
}

function fill(element, classes, attributes, children) {
  if (classes.length > 0) element.classList.add(...classes);
  if (attributes instanceof Node || typeof attributes === "string" || typeof attributes === "number" || Array.isArray(attributes)) {
    children = [attributes, ...children];
    attributes = null;
  }
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Puts children in place of what an element has. */
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

let said = 0;
/** Tells the reader what came of an action, also one who does not see the screen. */
export function say(text) {
  const place = document.getElementById("said");
  const mine = ++said;
  place.textContent = text;
  setTimeout(() => { if (mine === said) place.textContent = ""; }, 8000);
}

/** A button that cannot be pressed again before its work is done, and that tells of a failure. */
export function button(label, work, kind = "") {
  const made = h("button", { type: "button", class: kind || null });
  made.textContent = label;
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await work(made);
    } catch (error) {
      say(error.message);
    } finally {
      made.disabled = false;
    }
  });
  return made;
}

let named = 0;
/** A control under its name. */
export function labelled(name, control, ...rest) {
  control.id ||= `control-${++named}`;
  return h("div.field", h("label", { for: control.id }, name), control, rest);
}

/** Copies a text, and says so. */
export function copier(label, text) {
  return button(label, async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    say("Copied.");
  });
}

/** Terms and what they mean; those without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", known.map(([name, value]) => [h("dt", name), h("dd", value)]));
}

/** A table with a caption for those who hear it. */
export function table(caption, heads, rows) {
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption },
    h("table", { "aria-label": caption },
      h("thead", h("tr", heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", rows.map((row) => h("tr", row.map((cell) => h("td", cell)))))));
}

/** What stands while something loads, then what came, or why nothing did. */
export function loading(load, show) {
  const place = h("div", { "aria-busy": "true" }, h("p.faint", "Loading …"));
  load.then(
    (loaded) => put(place, show(loaded)),
    (error) => put(place, h("p.pill.bad", error.message)),
  ).finally(() => place.setAttribute("aria-busy", "false"));
  return place;
}
