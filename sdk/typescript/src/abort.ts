/** Listens to the signals of users. */

import { setMaxListeners } from "node:events";

/** Calls back when the signal is aborted; gives a function that ends the listening. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (signal === undefined) {
    return () => {};
  }
  // Many calls may share one signal. Each listener goes when its wait ends, so Node's warning of a leak would be wrong.
  setMaxListeners(0, signal);
  signal.addEventListener("abort", callback, { once: true });
  return () => signal.removeEventListener("abort", callback);
}
