// The view Peers: every peer, whether calls reach it, why not, and what it serves.
import { button, h, put, table } from "../dom.js";
import { act, get, on } from "../link.js";
import { ms, number, pill } from "../text.js";

const KINDS = { connected: "good", silent: "bad", refused: "bad", unreachable: "bad", waiting: "odd" };

export function peers(place) {
  const listed = h("div");
  const served = h("div");
  put(place, listed, h("h2", "What each serves"), served);
  let before = "";
  const show = (found) => {
    // It is drawn anew only when something has changed, so that what is read stays.
    const text = JSON.stringify(found);
    if (text === before) return;
    before = text;
    put(listed, found.length === 0 ? h("p", "There are no peers: this sidecar serves its own agent alone. Add [[peers]] to capd.toml, or run ", h("code", "capd pair"), ".")
      : table("Peers", ["Peer", "State", "Links", "Round trip", "Reason"], found.map((peer) => [
        [peer.name && `${peer.name} `, h("span.mono.wrap", peer.did)], pill(peer.state, KINDS[peer.state]), number(peer.links),
        peer.links > 0 ? roundTrip(peer.did) : "–", peer.reason ?? ""])));
  };
  get("/data/overview").then(({ now }) => show(now?.peers ?? []), () => {});
  get("/data/capabilities", { limit: 1000 }).then(({ capabilities }) => {
    const by = new Map();
    for (const offer of capabilities.filter((one) => !one.local)) {
      if (!by.has(offer.provider)) by.set(offer.provider, []);
      by.get(offer.provider).push(offer.id);
    }
    put(served, by.size === 0 ? h("p", "No peer serves anything that this agent may call.")
      : [...by].map(([did, ids]) => h("details", { open: by.size < 4 }, h("summary.mono.wrap", `${did} (${ids.length})`),
        h("ul", ids.map((id) => h("li", h("a.mono", { href: `#/capabilities/${encodeURIComponent(id)}` }, id)))))));
  }, (error) => put(served, h("p.pill.bad", error.message)));
  return on("overview", (now) => { if (now.reachable) show(now.peers); });
}

/** A button that measures, and the newest figure. */
function roundTrip(did) {
  const told = h("span", { role: "status" });
  const measure = button("Measure", async () => put(told, `${ms((await act("/act/ping", { to: did })).ms)} `));
  measure.setAttribute("aria-label", `Measure the round trip to ${did}`);
  return [told, measure];
}
