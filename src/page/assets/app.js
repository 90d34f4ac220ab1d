// Leads to the views: the part of the URL behind # in; the view that it names on the screen.
import { h, put } from "./dom.js";
import { enter, follow, get, on } from "./link.js";
import { know } from "./names.js";
import { overview } from "./views/overview.js";
import { calls } from "./views/calls.js";
import { capabilities } from "./views/capabilities.js";
import { contracts } from "./views/contracts.js";
import { peers } from "./views/peers.js";
import { policy } from "./views/policy.js";
import { audit } from "./views/audit.js";
import { configuration } from "./views/configuration.js";

/** Each shows itself in a place, and gives back what ends it. */
const VIEWS = [
  ["overview", "Overview", overview],
  ["calls", "Calls", calls],
  ["capabilities", "Capabilities", capabilities],
  ["contracts", "Contracts", contracts],
  ["peers", "Peers", peers],
  ["policy", "Policy", policy],
  ["audit", "Audit", audit],
  ["configuration", "Configuration", configuration],
];

const main = document.getElementById("main");
const state = document.getElementById("state");
let end = () => {};

function route(isFirst) {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...rest] = path.split("/").slice(1).map(decodeURIComponent);
  const [id, title, view] = VIEWS.find(([known]) => known === name) ?? VIEWS[0];
  end();
  put(document.getElementById("views"), VIEWS.map(([known, label]) =>
    h("a", { href: `#/${known}`, "aria-current": known === id ? "page" : null }, label)));
  document.title = `${title} · capd`;
  const place = h("div");
  put(main, h("h1", title), place);
  end = view(place, { rest, parameters: new URLSearchParams(query ?? "") }) ?? (() => {});
  // Whoever uses a screen reader or keys goes on where the view begins.
  if (!isFirst) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function shut(text) {
  end();
  state.textContent = "no session";
  put(main, h("h1", "This page is closed"), h("p", text), h("p", "In a terminal: ", h("code", "capd page")));
}

async function start() {
  addEventListener("hashchange", () => {
    // The URL that `capd page` prints, opened in a window that shows the page.
    if (location.hash.includes("token=")) location.reload();
  });
  try {
    if (!(await enter())) return shut("This browser has no session. Open the URL that `capd page` printed.");
  } catch (error) {
    return shut(error.message);
  }
  on("overview", (now) => {
    if (now.reachable) know(now.peers);
    state.textContent = now.reachable ? (now.status.draining ? "draining" : "live") : "no contact";
    state.className = `pill ${now.reachable && !now.status.draining ? "good" : "bad"}`;
    if (!now.reachable) state.title = now.detail;
  });
  on("lost", (error) => {
    if (error.status === 401) return shut(error.message);
    state.textContent = "page closed";
    state.className = "pill bad";
  });
  get("/data/self").then(({ name, did }) => {
    const who = document.getElementById("who");
    who.textContent = name || "capd";
    who.title = did;
  }, () => {});
  addEventListener("hashchange", () => {
    if (!location.hash.includes("token=")) route(false);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  // What is shown first has names as well.
  await get("/data/overview").then(({ now }) => know(now?.peers ?? []), () => {});
  route(true);
  follow();
}

start();
