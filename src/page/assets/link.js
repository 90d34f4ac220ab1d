// Speaks to the page's own server: one session, requests, and the one stream of events.

const KEY = "capd-page-key";

/** Opens a session with the token of the URL, if there is one, and takes it out of the address bar. */
export async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return sessionStorage.getItem(KEY) !== null;
  history.replaceState(null, "", "/#/overview");
  const answer = await fetch("/session", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  sessionStorage.setItem(KEY, (await answer.json()).key);
  return true;
}

async function ask(path, options = {}) {
  const headers = { [KEY]: sessionStorage.getItem(KEY) ?? "", ...options.headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The page is closed: `capd page` has ended. Start it again and open the URL that it prints.");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  const error = new Error(`${told.code ? `${told.code}: ` : ""}${told.detail ?? answer.statusText}`);
  error.status = answer.status;
  error.code = told.code;
  throw error;
}

/** What is at a path. Parameters that are empty are left out. */
export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const text = query.toString();
  return (await ask(text ? `${path}?${text}` : path)).json();
}

export async function download(path) {
  return (await ask(path)).blob();
}

/** Does something. */
export async function act(path, body = {}) {
  return (await send(path, body)).json();
}

async function send(path, body) {
  return ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

/** Makes a call, and tells each of its events. */
export async function call(body, told) {
  await read(await send("/act/call", body), told);
}

/** Reads events from an answer until it ends. */
async function read(answer, told) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2)).join("\n");
      if (field("event")) told(field("event"), JSON.parse(field("data")));
    }
  }
}

const listeners = new Map();
/** What comes with every event of this name from here on; the last one at once. */
export function on(name, listener) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name).add(listener);
  return () => listeners.get(name).delete(listener);
}

function tell(name, data) {
  for (const listener of listeners.get(name) ?? []) listener(data);
}

/** Follows the stream of events for as long as the page is open. */
export async function follow() {
  for (;;) {
    try {
      await read(await ask("/data/events"), tell);
    } catch (error) {
      tell("lost", error);
      if (error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
