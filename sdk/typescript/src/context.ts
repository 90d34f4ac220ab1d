/** What a handler knows of its call, and how it speaks to its caller. */

/** What the sidecar says about a call; the members are described at `CallContext`. */
export interface CallFacts {
  readonly id: string;
  readonly capability: string;
  readonly params: unknown;
  readonly caller: string | undefined;
  readonly thread: string | undefined;
  readonly traceparent: string | undefined;
  readonly deadlineMs: number | undefined;
}

/**
 * One call, as its handler sees it: the second argument of a handler.
 *
 * ```ts
 * agent.provide("com.acme.report", {}, async (params, call) => {
 *   call.status("reading");
 *   call.progress(40);
 *   return write(params.topic, { signal: call.signal });
 * });
 * ```
 */
export class CallContext implements CallFacts {
  /** The call's id. */
  readonly id: string;
  /** The capability id that was called. */
  readonly capability: string;
  /** The params as they came. */
  readonly params: unknown;
  /** The caller's DID. */
  readonly caller: string | undefined;
  /** The turn of a conversation that the call belongs to; pass it on with calls of your own. */
  readonly thread: string | undefined;
  /** The W3C trace; pass it on with calls of your own. */
  readonly traceparent: string | undefined;
  /** How many milliseconds the call had left when it came. */
  readonly deadlineMs: number | undefined;
  /** Aborted once the call was cancelled, its time is over, or the connection to the sidecar broke. Its reason is an `AbortError`. */
  readonly signal: AbortSignal;
  readonly #post: (what: "progress" | "input", body: unknown) => void;

  /** @internal */
  constructor(facts: CallFacts, signal: AbortSignal, post: (what: "progress" | "input", body: unknown) => void) {
    this.id = facts.id;
    this.capability = facts.capability;
    this.params = facts.params;
    this.caller = facts.caller;
    this.thread = facts.thread;
    this.traceparent = facts.traceparent;
    this.deadlineMs = facts.deadlineMs;
    this.signal = signal;
    this.#post = post;
  }

  /**
   * Tells the caller how far the call is, from 0 to 100. Returns at once; reports are sent in order.
   *
   * @throws RangeError for what is no integer from 0 to 100
   */
  progress(percent: number): void {
    if (!Number.isInteger(percent) || percent < 0 || percent > 100) {
      throw new RangeError(`percent: ${percent} is no integer from 0 to 100`);
    }
    this.#post("progress", { progress_pct: percent });
  }

  /** Tells the caller what the call does, and in how many milliseconds it will have its result. */
  status(text: string | undefined, options: { eta?: number | undefined } = {}): void {
    if (text === undefined && options.eta === undefined) {
      throw new TypeError("status: give a text, an eta, or both");
    }
    this.#post("progress", { status_text: text, eta_ms: options.eta === undefined ? undefined : Math.round(options.eta) });
  }

  /** Tells the caller that the call waits for something that only the caller's side can do. */
  ask(prompt: string): void {
    this.#post("input", { prompt });
  }
}
