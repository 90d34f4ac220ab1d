/** Decides whether a request is sent again, and when. All times are in milliseconds. */

import { type CapdError, type ErrorFacts, OutcomeUnknown, Pending, Refused } from "./errors.js";
import { Broken, Late, type Response, type TransportError } from "./transport.js";

/** How long a client waits for a sidecar that cannot be reached, unless it is told otherwise. */
export const WAIT_MS = 30_000;
/** How much longer than a call's timeout the client waits, so that the sidecar itself can say that it is over. */
export const GRACE_MS = 4_000;
const FIRST_PAUSE_MS = 50;
const PAUSE_MS_MAX = 2_000;

/** Growing pauses, each shortened at random by up to a half. */
export class Backoff {
  #next = FIRST_PAUSE_MS;

  /** The next pause. */
  pause(): number {
    const pause = this.#next * (0.5 + Math.random() / 2);
    this.#next = Math.min(this.#next * 2, PAUSE_MS_MAX);
    return pause;
  }

  /** Begins again with the first pause. */
  reset(): void {
    this.#next = FIRST_PAUSE_MS;
  }
}

/** The attempts of one request: until its timeout, or until its sidecar could not be reached for too long. */
export class Patience {
  /** When the answer must be there, on the clock of `performance.now()`. */
  readonly deadline: number | undefined;
  readonly #timeout: number | undefined;
  readonly #wait: number;
  readonly #over: number | undefined;
  readonly #now: () => number;
  #backoff = new Backoff();
  #troubleSince: number | undefined;
  #wasSent = false;

  constructor(timeout: number | undefined, wait: number, now: () => number = () => performance.now()) {
    this.#timeout = timeout;
    this.#wait = wait;
    this.#now = now;
    this.#over = timeout === undefined ? undefined : now() + timeout;
    this.deadline = this.#over === undefined ? undefined : this.#over + GRACE_MS;
  }

  /** The sidecar has answered: what comes later is new trouble. */
  progressed(): void {
    this.#troubleSince = undefined;
    this.#backoff.reset();
  }

  /** The pause before the next attempt. Throws the error that the user gets when there is none. */
  afterFailure(error: TransportError, wasWritten: boolean, facts: Pick<ErrorFacts, "call" | "key"> = {}): number {
    this.#wasSent ||= wasWritten;
    if (error instanceof Broken && error.isStale) {
      return 0;
    }
    const pause = this.#backoff.pause();
    if (!(error instanceof Late) && this.#hasTimeFor(pause)) {
      return pause;
    }
    throw this.#givenUp(error, facts);
  }

  /** The pause that the sidecar asks for. Throws the error when it is final. */
  afterRefusal(response: Response, error: CapdError): number {
    const pause = retryAfter(response);
    if (pause === undefined || !(error instanceof Refused) || error.retry === "no" || !this.#hasTimeFor(pause)) {
      throw error;
    }
    return pause;
  }

  #hasTimeFor(pause: number): boolean {
    const now = this.#now();
    this.#troubleSince ??= now;
    return now + pause < (this.#over ?? this.#troubleSince + this.#wait);
  }

  #givenUp(error: TransportError, facts: ErrorFacts): CapdError {
    if (!this.#wasSent) {
      return new Refused(error.message, { ...facts, code: 2002, title: "ENDPOINT_UNREACHABLE", retry: "yes" });
    }
    if (error instanceof Late && this.#timeout !== undefined) {
      return new Pending(`no answer within ${this.#timeout} ms`, { ...facts, code: 5003, title: "TIMEOUT", retry: "yes" });
    }
    const message = `contact with the sidecar was lost after the request was sent: ${error.message}`;
    return new OutcomeUnknown(message, { ...facts, code: 5902, title: "INTERRUPTED" });
  }
}

/** The milliseconds of `Retry-After`; the sidecar sends no dates. */
export function retryAfter(response: Response): number | undefined {
  const seconds = Number(response.header("retry-after") || NaN);
  return Number.isFinite(seconds) ? Math.max(0, seconds * 1000) : undefined;
}
