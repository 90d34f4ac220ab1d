/** Carries requests to the sidecar over node:http: the connections, the deadlines, and how a request ended without an answer. */

import { Buffer } from "node:buffer";
import { Agent, type IncomingMessage, type RequestOptions, request as open } from "node:http";

import { onAbort } from "./abort.js";
import { type Address, authority, shown } from "./address.js";
import { type CallEvent, EventParser } from "./events.js";

/** A request that has no whole answer. */
export abstract class TransportError extends Error {}

/** No connection: nothing was sent. */
export class Unreachable extends TransportError {}

/** The connection broke. `isStale`: it had been kept alive, and broke before the answer began. */
export class Broken extends TransportError {
  readonly isStale: boolean;

  constructor(message: string, isStale = false) {
    super(message);
    this.isStale = isStale;
  }
}

/** The deadline passed before the answer was whole. */
export class Late extends TransportError {}

/** The data of an event is not JSON. */
export class Unreadable extends Error {}

/** One request. `written` is set once its last byte was given to the operating system. */
export interface Request {
  readonly method: string;
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  written?: boolean;
}

/** When to stop waiting: a time on the clock of `performance.now()`, a silence in milliseconds, the user's own signal. */
export interface Limits {
  readonly deadline?: number | undefined;
  readonly silence?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The head of a response, and its body where that is not a stream of events. */
export class Response {
  readonly status: number;
  readonly body: Uint8Array;
  readonly #headers: IncomingMessage["headers"];

  constructor(status: number, headers: IncomingMessage["headers"], body: Uint8Array = new Uint8Array()) {
    this.status = status;
    this.body = body;
    this.#headers = headers;
  }

  /** A header by its name in lower case; undefined when it is missing. */
  header(name: string): string | undefined {
    const value = this.#headers[name];
    return Array.isArray(value) ? value.join(", ") : value;
  }
}

/** A stream of events that is open. */
export class EventStream {
  readonly #message: IncomingMessage;
  readonly #parser = new EventParser();
  #events: CallEvent[] = [];
  #end: { readonly error: Error | undefined } | undefined;
  #heardAt = performance.now();
  #wake: () => void = () => {};

  constructor(message: IncomingMessage) {
    this.#message = message;
    message.on("data", (bytes: Uint8Array) => this.#take(bytes));
    message.on("end", () => this.#finish(message.complete ? undefined : new Broken("the sidecar closed the connection")));
    message.on("error", (error) => this.#finish(new Broken(`the connection to the sidecar broke: ${error.message}`)));
    message.on("close", () => this.#finish(new Broken("the sidecar closed the connection")));
  }

  /**
   * The next event; undefined once the stream has ended in good order.
   *
   * Throws `Broken` or `Late`, `Unreadable` for data that is no JSON, and the signal's reason.
   */
  async next(limits: Limits): Promise<CallEvent | undefined> {
    for (;;) {
      limits.signal?.throwIfAborted();
      const event = this.#events.shift();
      if (event !== undefined) {
        return event;
      }
      if (this.#end?.error !== undefined) {
        throw this.#end.error;
      }
      if (this.#end !== undefined) {
        return undefined;
      }
      this.#message.resume();
      await this.#woken(limits);
    }
  }

  /** Closes the connection. What was not read is lost. */
  close(): void {
    this.#message.destroy();
  }

  /** Waits for bytes or for the end. */
  async #woken(limits: Limits): Promise<void> {
    const silent = limits.silence === undefined ? undefined : this.#heardAt + limits.silence;
    const end = Math.min(limits.deadline ?? Infinity, silent ?? Infinity);
    await new Promise<void>((resolve, reject) => {
      const stop = limited({ deadline: end, signal: limits.signal }, (error) => {
        this.#wake = () => {};
        reject(error);
      });
      this.#wake = () => {
        stop();
        resolve();
      };
    });
  }

  #take(bytes: Uint8Array): void {
    this.#heardAt = performance.now();
    try {
      this.#events.push(...this.#parser.feed(bytes));
    } catch (error) {
      this.#finish(new Unreadable(error instanceof Error ? error.message : String(error)));
      this.#message.destroy();
    }
    if (this.#events.length >= WAITING_EVENTS_MAX) {
      this.#message.pause();
    }
    this.#wake();
  }

  #finish(error: Error | undefined): void {
    this.#end ??= { error };
    this.#wake();
  }
}

/** A pool of connections to one sidecar. */
export class Transport {
  readonly #address: Address;
  readonly #agent = new Agent({ keepAlive: true, maxFreeSockets: IDLE_CONNECTIONS_MAX });
  #isClosed = false;

  constructor(address: Address) {
    this.#address = address;
  }

  /** Sends a request and reads its whole response. */
  async exchange(request: Request, limits: Limits): Promise<Response> {
    return (await this.#send(request, limits, false)).response;
  }

  /** Sends a request and reads the head of its response; and the body, when that is no stream of events. */
  async open(request: Request, limits: Limits): Promise<{ response: Response; stream: EventStream | undefined }> {
    return this.#send(request, limits, true);
  }

  /** Closes the connections that no request uses. */
  close(): void {
    this.#isClosed = true;
    this.#dropIdle();
  }

  async #send(request: Request, limits: Limits, mayStream: boolean): Promise<{ response: Response; stream: EventStream | undefined }> {
    if (this.#isClosed) {
      throw new Error("this client is closed");
    }
    limits.signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const sent = open(this.#options(request));
      const state = { isConnected: false, answer: undefined as IncomingMessage | undefined };
      const stops: (() => void)[] = [];
      const settle = (): void => stops.splice(0).forEach((stop) => stop());
      const fail = (error: unknown): void => {
        settle();
        // Whatever the connection says from here on is of no interest.
        sent.on("error", () => {});
        sent.destroy();
        state.answer?.on("error", () => {});
        state.answer?.destroy();
        if (error instanceof Broken && error.isStale) {
          // The sidecar has restarted, or closed what was idle: the other connections are no better.
          this.#dropIdle();
        }
        reject(error);
      };
      sent.on("socket", (socket) => {
        if (!socket.connecting) {
          state.isConnected = true;
          return;
        }
        const stop = limited({ deadline: performance.now() + CONNECT_MS_MAX }, () => fail(new Unreachable(`cannot connect to the sidecar at ${shown(this.#address)}: no answer`)));
        stops.push(stop);
        socket.once("connect", () => {
          state.isConnected = true;
          stop();
        });
      });
      sent.on("error", (error) => fail(this.#failure(error, state.isConnected, sent.reusedSocket && state.answer === undefined)));
      sent.on("response", (message) => {
        state.answer = message;
        const streams = mayStream && (message.headers["content-type"] ?? "").startsWith("text/event-stream");
        if (streams) {
          settle();
          resolve({ response: new Response(message.statusCode ?? 0, message.headers), stream: new EventStream(message) });
          return;
        }
        collect(message, fail, (body) => {
          settle();
          resolve({ response: new Response(message.statusCode ?? 0, message.headers, body), stream: undefined });
        });
      });
      // As bytes: node:http writes headers in the encoding of a body that is a text.
      sent.end(request.body === undefined ? undefined : Buffer.from(request.body, "utf8"), () => {
        request.written = true;
      });
      stops.push(limited(limits, fail));
    });
  }

  #options(request: Request): RequestOptions {
    const address = this.#address;
    const headers: Record<string, string | number> = { Host: authority(address) };
    if ("token" in address && address.token !== undefined) {
      headers["Authorization"] = `Bearer ${address.token}`;
    }
    for (const [name, value] of Object.entries(request.headers)) {
      // node:http writes each character as one byte: the bytes of UTF-8.
      headers[name] = Buffer.from(value, "utf8").toString("latin1");
    }
    if (request.body !== undefined) {
      headers["Content-Length"] = Buffer.byteLength(request.body);
    }
    const place = "path" in address ? { socketPath: address.path } : { host: address.host, port: address.port };
    return { ...place, method: request.method, path: request.target, headers, agent: this.#agent };
  }

  #failure(error: Error, isConnected: boolean, isStale: boolean): TransportError {
    if (isConnected) {
      return new Broken(`the connection to the sidecar broke: ${error.message}`, isStale);
    }
    return new Unreachable(`cannot connect to the sidecar at ${shown(this.#address)}: ${"code" in error ? error.code : error.message}`);
  }

  #dropIdle(): void {
    for (const sockets of Object.values(this.#agent.freeSockets)) {
      sockets?.forEach((socket) => socket.destroy());
    }
  }
}

/** Waits. Rejects with the signal's reason when it is aborted. */
export async function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      stop();
      resolve();
    }, milliseconds);
    const stop = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}

function collect(message: IncomingMessage, fail: (error: Error) => void, done: (body: Uint8Array) => void): void {
  const parts: Uint8Array[] = [];
  message.on("data", (bytes: Uint8Array) => parts.push(bytes));
  message.on("error", (error) => fail(new Broken(`the connection to the sidecar broke: ${error.message}`)));
  const closed = (): void => fail(new Broken("the sidecar closed the connection"));
  message.on("close", closed);
  message.on("end", () => {
    message.off("close", closed);
    if (message.complete) {
      done(Buffer.concat(parts));
    } else {
      closed();
    }
  });
}

/** Calls back with `Late` or with the signal's reason, unless the function that it returns is called before. */
function limited(limits: Limits, over: (error: unknown) => void): () => void {
  const { deadline, signal } = limits;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const ignore = onAbort(signal, () => {
    clearTimeout(timer);
    over(signal?.reason);
  });
  const stop = (): void => {
    clearTimeout(timer);
    ignore();
  };
  const look = (): void => {
    const left = (deadline ?? Infinity) - performance.now();
    if (left <= 0) {
      stop();
      over(new Late("the sidecar did not answer in time"));
    } else if (left < Infinity) {
      // A timer counts at most 2^31 - 1 ms: longer ones look again.
      timer = setTimeout(look, Math.min(left, TIMER_MS_MAX));
    }
  };
  look();
  return stop;
}

const IDLE_CONNECTIONS_MAX = 32;
const CONNECT_MS_MAX = 10_000;
const WAITING_EVENTS_MAX = 256;
const TIMER_MS_MAX = 2 ** 31 - 1;
