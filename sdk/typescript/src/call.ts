/** One call under its key, and the request that is the same however often it is sent. */

import { stringify } from "./json.js";
import type { BuiltAgainst, CallOptions } from "./options.js";
import type { Request } from "./transport.js";

/** One call: what is sent, and what is known of it so far. */
export class Call {
  readonly key: string;
  readonly timeout: number | undefined;
  readonly builtAgainst: BuiltAgainst | undefined;
  readonly signal: AbortSignal | undefined;
  /** The call's id, once the sidecar has told it. */
  id: string | undefined;
  /** The last event that was seen, after which a stream resumes. */
  lastEventId = "";
  readonly #target: string;
  readonly #headers: Record<string, string>;
  readonly #body: string;
  readonly #requests: Request[] = [];

  /** @throws TypeError for arguments that cannot be sent */
  constructor(name: string, params: unknown, options: CallOptions) {
    this.key = options.key ?? crypto.randomUUID();
    this.timeout = options.timeout;
    this.builtAgainst = options.builtAgainst;
    this.signal = options.signal;
    this.#target = target(path("/v1/call", name), {
      version: options.version,
      timeout: options.timeout === undefined ? undefined : milliseconds("timeout", options.timeout),
      to: options.to,
    });
    this.#headers = headersOf(this.key, options);
    this.#body = stringify(params);
  }

  /** The POST of this call. */
  request(more: Readonly<Record<string, string>> = {}): Request {
    const headers = { "Content-Type": "application/json", Accept: "application/json", ...this.#headers, ...more };
    const request = { method: "POST", target: this.#target, headers, body: this.#body, written: false };
    this.#requests.push(request);
    return request;
  }

  /** Whether the sidecar may know of it. */
  get wasSent(): boolean {
    return this.#requests.some((request) => request.written);
  }
}

/** A request's target; parameters that are undefined are left out. */
export function target(place: string, query: Readonly<Record<string, string | number | undefined>>): string {
  const pairs = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`]));
  return pairs.length === 0 ? place : `${place}?${pairs.join("&")}`;
}

/** A path that ends with a name that somebody gave. */
export function path(place: string, name: string): string {
  return `${place}/${encodeURIComponent(name).replaceAll("%3A", ":")}`;
}

function headersOf(key: string, options: CallOptions): Record<string, string> {
  const headers: Record<string, string> = { "Idempotency-Key": header("key", key) };
  if (new TextEncoder().encode(key).length > KEY_BYTES_MAX) {
    throw new TypeError(`key: an idempotency key has 1 to ${KEY_BYTES_MAX} bytes`);
  }
  if (options.thread !== undefined) {
    headers["Capd-Thread"] = header("thread", options.thread);
  }
  if (options.affinity !== undefined) {
    headers["Capd-Affinity"] = header("affinity", options.affinity);
  }
  if (options.traceparent !== undefined) {
    headers["traceparent"] = header("traceparent", options.traceparent);
  }
  if (options.builtAgainst?.input !== undefined || options.builtAgainst?.output !== undefined) {
    headers["Capd-Built-Against"] = `${options.builtAgainst.input?.sha256 ?? "-"}, ${options.builtAgainst.output?.sha256 ?? "-"}`;
  }
  const ttl = options.ttl ?? (options.key === undefined ? ownKeyTtl(options.timeout) : undefined);
  if (ttl !== undefined) {
    headers["Capd-Ttl"] = milliseconds("ttl", ttl);
  }
  return headers;
}

/** How long a key that the SDK has made is kept. Nobody else knows it, and both sidecars keep each one: no longer than it can be of use. */
function ownKeyTtl(timeout: number | undefined): number {
  return timeout === undefined ? OWN_KEY_MS : timeout + OWN_KEY_MARGIN_MS;
}

function milliseconds(name: string, value: number): string {
  if (!(value > 0 && value < Infinity)) {
    throw new TypeError(`${name}: ${value} is not above 0 ms`);
  }
  return `${Math.max(1, Math.round(value))}ms`;
}

function header(name: string, value: string): string {
  if (!/^[^\x00-\x1f\x7f]+$/.test(value)) {
    throw new TypeError(`${name}: ${JSON.stringify(value)} is empty or has control characters`);
  }
  return value;
}

const KEY_BYTES_MAX = 255;
/** As long as the sidecar remembers a call without a key. It bounds the call's time as well. */
const OWN_KEY_MS = 3_600_000;
const OWN_KEY_MARGIN_MS = 300_000;
