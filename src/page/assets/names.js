// Tells peers by the names that the sidecar's owner gave them: a DID in, its name out, and back. A name that two peers have names
// neither of them.

let byDid = new Map();
let byName = new Map();

/** Learns the peers: each has a DID, and may have a name. */
export function know(peers) {
  const named = peers.filter((peer) => peer.name);
  const key = (peer) => peer.name.toLowerCase();
  const count = new Map();
  for (const peer of named) count.set(key(peer), (count.get(key(peer)) ?? 0) + 1);
  const unique = named.filter((peer) => count.get(key(peer)) === 1);
  byDid = new Map(unique.map((peer) => [peer.did, peer.name]));
  byName = new Map(unique.map((peer) => [key(peer), peer.did]));
}

/** The name of the peer with this DID, if it has one of its own. */
export function nameOf(did) {
  return byDid.get(did);
}

/** The DID of the peer with this name; any other text as it is. */
export function didOf(text) {
  return byName.get(text.toLowerCase()) ?? text;
}

/** A text in which each peer with a name is called by it. */
export function named(text) {
  let told = text;
  for (const [did, name] of byDid) told = told.replaceAll(did, name);
  return told;
}
