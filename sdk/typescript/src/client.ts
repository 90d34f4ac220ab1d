/** Calls capabilities through the sidecar beside this agent. */

import { onAbort } from "./abort.js";
import { find } from "./address.js";
import { Call, path } from "./call.js";
import type { CallEvent } from "./events.js";
import * as flows from "./flows.js";
import type { Answer, CallOptions } from "./options.js";
import { WAIT_MS } from "./patience.js";
import { type ToolFormat, type Tools, toolsOf } from "./tools.js";
import { Transport } from "./transport.js";

/** Where the sidecar is, and how long to wait for it. */
export interface ClientOptions {
  /**
   * The path of the sidecar's socket, or `http://127.0.0.1:PORT` with `token`. Without it the environment's `CAPD_SOCKET` or
   * `CAPD_HTTP` say where it is, else it is where capd puts it by itself.
   */
  address?: string | undefined;
  /** The token of `listen.token_file`, for HTTP on TCP. Without it `CAPD_TOKEN`, or the file that `CAPD_TOKEN_FILE` names. */
  token?: string | undefined;
  /** How many milliseconds a request waits for a sidecar that cannot be reached, such as one that starts later; 30 s unless set. */
  wait?: number | undefined;
}

/** What requests that only read may have. */
export interface RequestOptions {
  /** Aborting it ends the wait; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Which calls to list. */
export interface CallsFilter extends RequestOptions {
  /** Those that this agent made, or those that it served. */
  role?: "made" | "served" | undefined;
  /** Those in a state, such as `running` or `finished`. */
  state?: string | undefined;
  /** Those of a capability, by its name. */
  capability?: string | undefined;
  /** Those since then: how long ago, such as `24h`, or a time, such as `2026-11-21T12:00:00Z`. */
  since?: string | undefined;
  /** The most that are listed; all unless set. */
  limit?: number | undefined;
}

/** Which capabilities to list. */
export interface CapabilitiesFilter extends RequestOptions {
  /** Those below a namespace, such as `com.acme`. */
  namespace?: string | undefined;
  /** Those with words in their name or description. */
  q?: string | undefined;
  /** The most that are listed; all unless set. */
  limit?: number | undefined;
}

/**
 * Calls capabilities through the sidecar beside this agent.
 *
 * ```ts
 * const client = new Client();
 * await client.call("com.acme.translate", { text: "hello" }, { version: ">=1.0.0 <2.0.0" });
 * ```
 *
 * Idle connections do not keep the program running.
 */
export class Client {
  readonly #means: flows.Means;

  /** @throws TypeError for an address that is no place of a sidecar */
  constructor(options: ClientOptions = {}) {
    this.#means = { transport: new Transport(find(options.address, options.token)), wait: options.wait ?? WAIT_MS };
  }

  /** Closes idle connections. Calls in flight end as they would; new ones are an error. */
  close(): void {
    this.#means.transport.close();
  }

  /**
   * Calls a capability and returns its result.
   *
   * @param name `com.acme.translate`, or an id such as `com.acme.translate:1.2.0`
   * @param params any JSON value
   * @throws Refused, Failed, OutcomeUnknown or Pending; the reason of `options.signal`; TypeError for what cannot be sent
   */
  async call<Result = unknown>(name: string, params?: unknown, options: CallOptions = {}): Promise<Result> {
    return (await this.answer<Result>(name, params, options)).value;
  }

  /** Like `call`; returns the result with the call's id, the chosen version, and whether it was recorded before. */
  async answer<Result = unknown>(name: string, params?: unknown, options: CallOptions = {}): Promise<Answer<Result>> {
    const made = new Call(name, params, options);
    try {
      return (await flows.call(made, this.#means)) as Answer<Result>;
    } catch (error) {
      await abandonIfAborted(options.signal, made, this.#means);
      throw error;
    }
  }

  /**
   * Calls a capability and returns its events, the last one being `result`.
   *
   * A stream that breaks resumes where it broke. Leaving the loop early closes the stream and leaves the call running;
   * `cancel` and the signal of `options` end it.
   */
  stream<Result = unknown>(name: string, params?: unknown, options: CallOptions = {}): CallStream<Result> {
    return new CallStream<Result>(name, params, options, this.#means);
  }

  /** Starts a call without waiting for it; returns its id. */
  async start(name: string, params?: unknown, options: CallOptions = {}): Promise<string> {
    const made = new Call(name, params, options);
    try {
      return await flows.start(made, this.#means);
    } catch (error) {
      await abandonIfAborted(options.signal, made, this.#means);
      throw error;
    }
  }

  /** Waits for the result of a call that was started before. Throws what `call` throws. The signal ends the wait, not the call. */
  async result<Result = unknown>(call: string, options: RequestOptions = {}): Promise<Result> {
    return (await flows.waitFor(call, this.#means, options.signal)) as Result;
  }

  /** What the sidecar knows of a call: its state, and its answer once it has one. */
  async get(call: string, options: RequestOptions = {}): Promise<Record<string, unknown>> {
    return record(await flows.get(path("/v1/calls", call), {}, this.#means, options.signal));
  }

  /** Cancels a call; returns whether it had not ended before. */
  async cancel(call: string, options: RequestOptions = {}): Promise<boolean> {
    return flows.cancel(call, this.#means, options.signal);
  }

  /** The calls that the sidecar knows, made and served, newest first. */
  async calls(filter: CallsFilter = {}): Promise<Record<string, unknown>[]> {
    const { role, state, capability, since, limit, signal } = filter;
    return (await flows.pages("/v1/calls", "calls", { role, state, capability, since }, limit, this.#means, signal)) as Record<string, unknown>[];
  }

  /** The capabilities that may be called. */
  async capabilities(filter: CapabilitiesFilter = {}): Promise<Record<string, unknown>[]> {
    const { namespace, q, limit, signal } = filter;
    return (await flows.pages("/v1/capabilities", "capabilities", { namespace, q }, limit, this.#means, signal)) as Record<string, unknown>[];
  }

  /** One capability with its schemas and providers. A name without a version is its newest one. */
  async describe(id: string, options: RequestOptions = {}): Promise<Record<string, unknown>> {
    return record(await flows.get(path("/v1/capabilities", id), {}, this.#means, options.signal));
  }

  /** The sidecar itself: its DID, name and version, the capabilities that it serves, its peers. */
  async self(options: RequestOptions = {}): Promise<Record<string, unknown>> {
    return record(await flows.get("/v1/self", {}, this.#means, options.signal));
  }

  /** The capabilities that may be called, as tool definitions for a language model. */
  async tools(format: ToolFormat, options: RequestOptions & { namespace?: string | undefined } = {}): Promise<Tools> {
    return toolsOf(await flows.get("/v1/tools", { format, namespace: options.namespace }, this.#means, options.signal));
  }

  /**
   * Calls the capability behind a tool name.
   *
   * @param given the arguments as the model gave them: an object, or its JSON text
   * @throws Refused with code 4002 for a name that `tools` does not have; nothing is sent
   */
  async callTool<Result = unknown>(tools: Tools, name: string, given?: unknown, options: CallOptions = {}): Promise<Result> {
    return this.call<Result>(tools.capability(name), tools.params(name, given), options);
  }
}

/** The events of one call, to be read once: with `for await`, with `result`, or with the one and then the other. */
export class CallStream<Result = unknown> implements AsyncIterable<CallEvent> {
  readonly #made: Call;
  readonly #means: flows.Means;
  readonly #signal: AbortSignal | undefined;
  readonly #reading = new AbortController();
  readonly #events: AsyncGenerator<CallEvent, unknown, undefined>;
  readonly #ignoreSignal: () => void;
  #end: { readonly value: unknown } | { readonly error: unknown } | undefined;
  #isClosed = false;

  /** @internal */
  constructor(name: string, params: unknown, options: CallOptions, means: flows.Means) {
    this.#means = means;
    this.#signal = options.signal;
    this.#made = new Call(name, params, { ...options, signal: this.#reading.signal });
    this.#events = flows.stream(this.#made, means);
    const abort = (): void => this.#reading.abort(this.#signal?.reason);
    this.#ignoreSignal = onAbort(this.#signal, abort);
    if (this.#signal?.aborted === true) {
      abort();
    }
  }

  /** The call's id, once the sidecar has told it. */
  get call(): string | undefined {
    return this.#made.id;
  }

  /**
   * The call's result. Reads to the end of the stream.
   *
   * @throws what `Client.call` throws; Error when the stream was closed before its result came
   */
  async result(): Promise<Result> {
    let next = await this.#next();
    while (next.done !== true) {
      next = await this.#next();
    }
    if (this.#end !== undefined && "value" in this.#end) {
      return this.#end.value as Result;
    }
    throw this.#end?.error ?? new Error("the stream was closed before its result came");
  }

  /** The events; leaving the loop closes the stream. The loop throws what `Client.call` throws. */
  [Symbol.asyncIterator](): AsyncIterator<CallEvent, undefined, undefined> {
    return {
      next: () => this.#next(),
      return: async () => {
        await this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /** Cancels the call and closes the stream. */
  async cancel(): Promise<void> {
    await this.close();
    await flows.cancelCall(this.#made, this.#means, CANCEL_MS);
  }

  /** Closes the stream. The call goes on. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#ignoreSignal();
    this.#reading.abort();
    await this.#events.return(undefined);
  }

  async #next(): Promise<IteratorResult<CallEvent, undefined>> {
    try {
      const next = await this.#events.next();
      if (next.done !== true) {
        return next;
      }
      if (!this.#isClosed) {
        this.#finish({ value: next.value });
      }
    } catch (error) {
      if (!this.#isClosed) {
        this.#finish({ error });
        await abandonIfAborted(this.#signal, this.#made, this.#means);
        throw error;
      }
    }
    return { done: true, value: undefined };
  }

  #finish(end: { readonly value: unknown } | { readonly error: unknown }): void {
    this.#end ??= end;
    this.#ignoreSignal();
  }
}

/** Tells the sidecar that nobody waits for a call any more, if its user has aborted it. */
async function abandonIfAborted(signal: AbortSignal | undefined, made: Call, means: flows.Means): Promise<void> {
  if (signal?.aborted !== true) {
    return;
  }
  try {
    await flows.cancelCall(made, means, CANCEL_MS);
  } catch (error) {
    console.warn(`capd: a call could not be cancelled: ${error instanceof Error ? error.message : error}`);
  }
}

function record(value: unknown): Record<string, unknown> {
  return value as Record<string, unknown>;
}

/** How long a user who has cancelled waits until the sidecar knows. */
const CANCEL_MS = 5_000;
