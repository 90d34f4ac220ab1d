// The view Peers: every peer, whether calls reach it, why not, how its links do, and what it serves; the fleet's registry.
import { button, facts, h, put, table } from "../dom.js";
import { act, get, on } from "../link.js";
import { named, nameOf } from "../names.js";
import { ms, number, pill } from "../text.js";

const REGISTRY_MS = 5000;
const HEALTH = { ok: "good", degraded: "odd", failed: "bad" };
const KINDS = { connected: "good", silent: "bad", refused: "bad", unreachable: "bad", waiting: "odd" };

export function peers(place) {
  const listed = h("div");
  const served = h("div");
  const fleet = h("div", { id: "fleet" });
  put(place, listed, h("h2", "The fleet\u2019s registry"), fleet, h("h2", "What each serves"), served);
  let before = "";
  let losses = new Map();
  const show = (found, paths) => {
    // It is drawn anew only when something has changed, so that what is read stays. What is measured changes in its place.
    const text = JSON.stringify(found);
    if (text !== before) {
      before = text;
      losses = new Map(found.map((peer) => [peer.did, h("span")]));
      draw(found);
    }
    for (const [did, cell] of losses) put(cell, loss(paths.filter((path) => path.did === did)));
  };
  const draw = (found) => {
    put(listed, found.length === 0 ? h("p", "There are no peers: this sidecar serves its own agent alone. Add [[peers]] to capd.toml, or run ", h("code", "capd pair"), ".")
      : table("Peers", ["Peer", "State", "Links", "Round trip", "Loss", "Reason"], found.map((peer) => [
        [peer.name && `${peer.name} `, h("span.mono.wrap", peer.did)], pill(peer.state, KINDS[peer.state]), number(peer.links),
        peer.links > 0 ? roundTrip(peer.did) : "–", losses.get(peer.did), named(peer.reason ?? "")])));
  };
  get("/data/overview").then(({ now }) => show(now?.peers ?? [], now?.status?.paths ?? []), () => {});
  // Asking asks the registry, which may take seconds: the next question waits for the answer.
  let isAsking = false;
  let asked = 0;
  const ask = async () => {
    if (isAsking || Date.now() - asked < REGISTRY_MS) return;
    isAsking = true;
    try {
      put(fleet, registry(await get("/data/fleet")));
    } catch (error) {
      put(fleet, h("p.pill.bad", error.message));
    } finally {
      asked = Date.now();
      isAsking = false;
    }
  };
  ask();
  get("/data/capabilities", { limit: 1000 }).then(({ capabilities }) => {
    const by = new Map();
    for (const offer of capabilities.filter((one) => !one.local)) {
      if (!by.has(offer.provider)) by.set(offer.provider, []);
      by.get(offer.provider).push(offer.id);
    }
    put(served, by.size === 0 ? h("p", "No peer serves anything that this agent may call.")
      : [...by].map(([did, ids]) => h("details", { open: by.size < 4 }, h("summary", nameOf(did) && `${nameOf(did)} `, h("span.mono.wrap", did), ` (${ids.length})`),
        h("ul", ids.map((id) => h("li", h("a.mono", { href: `#/capabilities/${encodeURIComponent(id)}` }, id)))))));
  }, (error) => put(served, h("p.pill.bad", error.message)));
  return on("overview", (now) => {
    if (!now.reachable) return;
    show(now.peers, now.status.paths);
    ask();
  });
}

/** Packets of all links to a peer that were lost on the way there. A link over TCP does not say. */
function loss(paths) {
  const sum = (key) => paths.reduce((all, path) => all + path[key], 0);
  if (sum("sent") === 0) return "–";
  return `${(sum("lost") * 100 / sum("sent")).toFixed(1)} % of ${number(sum("sent"))}`;
}

/** How the registry is, and what is known of it. */
function registry(told) {
  if (!told) return h("p", "This sidecar is in no fleet: it knows the peers of its configuration, and finds no others.");
  const seconds = (at) => (at === null ? "not known yet" : `${number(Math.floor(at / 1000))} s`);
  return facts([
    ["fleet", [`${told.cell} `, pill(told.health, HEALTH[told.health]), ` ${told.detail}`]],
    ["engine", [h("span.mono.wrap", told.registry), told.version ? ` ${told.version}` : ""]],
    ["answers", told.error ? pill(told.error, "bad") : `in ${ms(told.took_ms)}`],
    ["revision", told.revision === null ? "not known" : number(told.revision)],
    ["staleness", told.stale_ms === null ? "not read any more: this sidecar has left, since it drains" : told.stale_ms ? pill(`${seconds(told.stale_ms)} behind; known providers are called`, "odd") : "none: what is known is current"],
    ["frozen", told.frozen ? pill("yes: much vanished at once, and nothing of it is dropped", "odd") : "no"],
    ["revocations", told.revocations_age_ms === null ? pill("not known yet: no member gets a link", "bad") : `known as of ${seconds(told.revocations_age_ms)} ago`],
    ["registered", told.generation === null ? "nothing" : `generation ${told.generation}, incarnation ${told.incarnation}`],
    ["did not count", told.refused.map((one) => `${one.count} × ${one.why}`).join(", ")],
  ]);
}

/** A button that measures, and the newest figure. */
function roundTrip(did) {
  const told = h("span", { role: "status" });
  const measure = button("Measure", async () => put(told, `${ms((await act("/act/ping", { to: did })).ms)} `));
  measure.setAttribute("aria-label", `Measure the round trip to ${did}`);
  return [told, measure];
}
