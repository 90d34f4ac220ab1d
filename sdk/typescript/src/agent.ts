/** Serves capabilities through the sidecar beside this agent. */

import process from "node:process";

import { onAbort } from "./abort.js";
import { type Address, find } from "./address.js";
import { Capability, type CapabilityOptions, type Declaration, type Handler } from "./capability.js";
import { type CapdError, Refused } from "./errors.js";
import { stringify } from "./json.js";
import { type Logger, QUIET } from "./log.js";
import { Backoff, retryAfter } from "./patience.js";
import { ofResponse } from "./problem.js";
import type { AnySchema } from "./schema.js";
import { Session } from "./session.js";
import { type EventStream, type Request, Transport, TransportError, Unreadable, pause } from "./transport.js";

/** Where the sidecar is, and how an agent serves. */
export interface AgentOptions {
  /** As of `Client`: a socket's path, or `http://127.0.0.1:PORT`; found in the environment unless set. */
  address?: string | undefined;
  /** The token for HTTP on TCP. */
  token?: string | undefined;
  /** How many calls run at once; more wait in the sidecar. 64 unless set. */
  concurrency?: number | undefined;
  /** Where to write; warnings and errors go to stderr unless set. */
  log?: Logger | undefined;
}

/**
 * An agent that other agents can call.
 *
 * ```ts
 * const agent = new Agent();
 * agent.provide("com.acme.translate", { version: "1.2.0", idempotent: true, input: z.object({ text: z.string() }) },
 *   async ({ text }) => ({ text: await translated(text) }));
 * await agent.run();
 * ```
 *
 * The agent opens no port: it asks the sidecar for its calls. It waits for a sidecar that starts later, and declares
 * everything again when the connection breaks.
 */
export class Agent {
  readonly #address: Address;
  readonly #concurrency: number;
  readonly #log: Logger;
  readonly #capabilities = new Map<string, Capability>();
  readonly #stopping = new AbortController();
  #serving: Promise<void> | undefined;
  #session: Session | undefined;
  #readiness = new Readiness();

  /** @throws TypeError for an address that is no place of a sidecar; RangeError for a concurrency below 1 */
  constructor(options: AgentOptions = {}) {
    this.#address = find(options.address, options.token);
    this.#concurrency = options.concurrency ?? 64;
    this.#log = options.log ?? QUIET;
    if (!Number.isSafeInteger(this.#concurrency) || this.#concurrency < 1) {
      throw new RangeError(`concurrency: ${this.#concurrency} is no integer above 0`);
    }
  }

  /**
   * Serves a capability. The handler gets the params and the call.
   *
   * @throws SchemaError for a schema that cannot be declared; Error for a version that is served already
   */
  provide<Input extends AnySchema | undefined = undefined, Output extends AnySchema | undefined = undefined>(
    name: string,
    options: CapabilityOptions<Input, Output>,
    handler: Handler<Input, Output>,
  ): this {
    const capability = new Capability(name, options, handler);
    if (this.#capabilities.has(capability.id)) {
      throw new Error(`${capability.id} is served already`);
    }
    if (this.#serving !== undefined) {
      throw new Error(`${capability.id}: the agent is serving already; declare everything before serve or run`);
    }
    this.#capabilities.set(capability.id, capability);
    return this;
  }

  /** What is declared to the sidecar, as in `capabilities.yaml`. */
  get declarations(): readonly Declaration[] {
    return [...this.#capabilities.values()].map((capability) => capability.declaration);
  }

  /** Serves until SIGINT, SIGTERM or `stop`. Rejects as `serve` does. */
  async run(): Promise<void> {
    const stop = (): void => void this.stop();
    process.once("SIGINT", stop).once("SIGTERM", stop);
    try {
      await this.serve();
    } finally {
      process.off("SIGINT", stop).off("SIGTERM", stop);
    }
  }

  /**
   * Serves until `stop` is called or the signal is aborted.
   *
   * @throws Refused when the sidecar refuses the declaration for good
   */
  serve(options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    this.#serving ??= this.#serveUntilStopped(options.signal);
    return this.#serving;
  }

  /** Waits until the sidecar has taken the declaration. Rejects when the agent ends before. */
  ready(): Promise<void> {
    return this.#readiness.promise;
  }

  /** Stops serving: lets running calls end for up to 10 s, withdraws what was declared, and waits for the end. Never rejects. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#serving?.catch(() => undefined);
  }

  async #serveUntilStopped(signal: AbortSignal | undefined): Promise<void> {
    if (this.#capabilities.size === 0) {
      throw new Error("this agent has no capability to serve");
    }
    if (signal?.aborted === true || this.#stopping.signal.aborted) {
      this.#readiness.end();
      return;
    }
    const ignoreSignal = onAbort(signal, () => this.#stopping.abort());
    const ending = new AbortController();
    const transport = new Transport(this.#address);
    const serving = this.#serve(transport, ending.signal);
    try {
      await Promise.race([serving, aborted(this.#stopping.signal)]);
      await this.#session?.drained(DRAIN_MS);
      ending.abort();
      await serving;
    } finally {
      ignoreSignal();
      this.#readiness.end();
      transport.close();
    }
  }

  /** Declares, serves, and does so again whenever the stream ends, until the signal is aborted. */
  async #serve(transport: Transport, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff();
    const body = stringify({ capabilities: this.declarations, concurrency: this.#concurrency });
    let isTold = false;
    while (!signal.aborted) {
      const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
      const request: Request = { method: "POST", target: "/v1/provide", headers, body };
      try {
        const { response, stream } = await transport.open(request, { deadline: performance.now() + SILENCE_MS_MAX, signal });
        isTold = false;
        if (stream === undefined) {
          await pause(this.#pauseAfter(ofResponse(response), retryAfter(response), backoff), signal);
          continue;
        }
        await this.#read(transport, stream, backoff, signal);
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        if (!(error instanceof TransportError)) {
          throw error;
        }
        if (!isTold) {
          isTold = true;
          this.#log.warn(`${error.message}; trying again until it is there`);
        }
      }
      await pause(backoff.pause(), signal).catch(() => undefined);
    }
  }

  /** Serves one session, to the end of its stream. */
  async #read(transport: Transport, stream: EventStream, backoff: Backoff, signal: AbortSignal): Promise<void> {
    const session = new Session(transport, this.#capabilities, this.#log);
    this.#session = session;
    try {
      for (;;) {
        const event = await stream.next({ silence: SILENCE_MS_MAX, signal });
        if (event === undefined) {
          this.#log.warn("the sidecar has ended the session");
          return;
        }
        if (session.handle(event)) {
          backoff.reset();
          this.#readiness.reached();
          this.#log.info(`serving ${[...this.#capabilities.keys()].join(", ")}`);
        }
      }
    } catch (error) {
      if (error instanceof Unreadable) {
        this.#log.error(`the sidecar's stream is not readable: ${error.message}`);
      } else if (error instanceof TransportError) {
        this.#log.warn(`the session has ended: ${error.message}`);
      } else if (!signal.aborted) {
        throw error;
      }
    } finally {
      stream.close();
      this.#session = undefined;
      await session.end();
    }
  }

  /** The pause before the declaration is sent again. Throws the error when it is final. */
  #pauseAfter(error: CapdError, asked: number | undefined, backoff: Backoff): number {
    if (error instanceof Refused && (asked === undefined || error.retry === "no")) {
      throw error;
    }
    this.#log.warn(`the sidecar does not take the declaration yet: ${error.message}`);
    return asked ?? backoff.pause();
  }
}

/** A promise for the first time that a declaration was taken. */
class Readiness {
  readonly promise: Promise<void>;
  reached!: () => void;
  #fail!: (error: Error) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.reached = resolve;
      this.#fail = reject;
    });
    // Nobody has to wait for it.
    this.promise.catch(() => undefined);
  }

  end(): void {
    this.#fail(new Error("the agent has ended before the sidecar took its declaration"));
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    }
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** The sidecar sends a comment every 10 s: a stream that is silent for so long is dead. */
const SILENCE_MS_MAX = 35_000;
const DRAIN_MS = 10_000;
