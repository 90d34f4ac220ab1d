/**
 * One class for each outcome that a call can have. The class tells what you may do next; `code` tells why.
 *
 * @module
 */

/** What is known about a call's execution when it has no result. */
export type Outcome = "refused" | "failed" | "unknown" | "pending";

/** Whether the same request may succeed later. */
export type Retry = "no" | "yes" | "backoff" | (string & {});

/** What an error knows beside its message; the members are those of `CapdError`. */
export interface ErrorFacts {
  code?: number | undefined;
  title?: string | undefined;
  details?: unknown;
  call?: string | undefined;
  retry?: Retry | undefined;
  status?: number | undefined;
  key?: string | undefined;
}

/** A call that has no result, or a request that the sidecar refused. */
export abstract class CapdError extends Error {
  /** `refused`, `failed`, `unknown` or `pending`. */
  abstract get outcome(): Outcome;
  /** The error code, such as 4004; 0 when the answer had none. */
  readonly code: number;
  /** The code's name, such as `SCHEMA_VIOLATION`. */
  readonly title: string;
  /** Violations, findings, and whatever else the code carries; undefined when there is nothing. */
  readonly details: unknown;
  /** The call's id, where one was given. */
  readonly call: string | undefined;
  /** Whether the same request may succeed later: `no`, `yes` or `backoff`. */
  readonly retry: Retry;
  /** The HTTP status; undefined when no answer came. */
  readonly status: number | undefined;
  /** The idempotency key that the request was made with: the same key never runs the call twice. */
  readonly key: string | undefined;

  constructor(message: string, facts: ErrorFacts = {}) {
    super(message);
    this.code = facts.code ?? 0;
    this.title = facts.title ?? "";
    this.details = facts.details;
    this.call = facts.call;
    this.retry = facts.retry ?? "no";
    this.status = facts.status;
    this.key = facts.key;
  }

  /** `Refused: 4004 SCHEMA_VIOLATION: params do not fit (call …)`. */
  override toString(): string {
    const title = [this.code ? String(this.code) : "", this.title].filter(Boolean).join(" ");
    return `${this.name}: ${title ? `${title}: ` : ""}${this.message}${this.call ? ` (call ${this.call})` : ""}`;
  }
}

/** Nothing was executed. Fix the cause and call again. */
export class Refused extends CapdError {
  override get name(): "Refused" {
    return "Refused";
  }

  get outcome(): "refused" {
    return "refused";
  }
}

/** The call ran, and this error is its one result. Decide by `code`. */
export class Failed extends CapdError {
  override get name(): "Failed" {
    return "Failed";
  }

  get outcome(): "failed" {
    return "failed";
  }
}

/** Nobody knows whether the call took effect. Look at the effect before you call again under another key. */
export class OutcomeUnknown extends CapdError {
  override get name(): "OutcomeUnknown" {
    return "OutcomeUnknown";
  }

  get outcome(): "unknown" {
    return "unknown";
  }
}

/** The call may still run. Ask again with the same key, or wait with `client.result(error.call)`. */
export class Pending extends CapdError {
  override get name(): "Pending" {
    return "Pending";
  }

  get outcome(): "pending" {
    return "pending";
  }
}

/**
 * What a handler throws so that its caller gets a code, a message and details.
 *
 * Choose `code` among those that the protocol does not use: 6000 and above. Any other error reaches the caller as 5001,
 * without its text.
 */
export class CallError extends Error {
  /** The code that the caller gets. */
  readonly code: number;
  /** Whatever JSON value helps the caller; undefined for nothing. */
  readonly details: unknown;

  constructor(code: number, message: string, details?: unknown) {
    super(message);
    this.code = code;
    this.details = details;
  }

  override get name(): string {
    return "CallError";
  }
}

/** A schema that cannot be declared. Thrown where the capability is registered, with the capability and the side. */
export class SchemaError extends TypeError {
  override get name(): string {
    return "SchemaError";
  }
}

/** The class of an outcome; undefined for one that this version does not know. */
export function classOf(outcome: unknown): (new (message: string, facts?: ErrorFacts) => CapdError) | undefined {
  switch (outcome) {
    case "refused":
      return Refused;
    case "failed":
      return Failed;
    case "unknown":
      return OutcomeUnknown;
    case "pending":
      return Pending;
    default:
      return undefined;
  }
}
