/** One session of a provider: the events of its stream in, progress and results out. */

import { path } from "./call.js";
import type { Capability } from "./capability.js";
import { CallContext } from "./context.js";
import { CallError } from "./errors.js";
import type { CallEvent } from "./events.js";
import { stringify } from "./json.js";
import type { Logger } from "./log.js";
import { Backoff } from "./patience.js";
import { isRecord } from "./problem.js";
import { type Request, type Response, type Transport, TransportError, pause } from "./transport.js";

/** The calls that run under one stream. */
export class Session {
  readonly #transport: Transport;
  readonly #capabilities: ReadonlyMap<string, Capability>;
  readonly #log: Logger;
  readonly #running = new Map<string, Running>();
  /** Aborted once the stream has ended: nobody can take results any more. */
  readonly #over = new AbortController();
  #id = "";

  constructor(transport: Transport, capabilities: ReadonlyMap<string, Capability>, log: Logger) {
    this.#transport = transport;
    this.#capabilities = capabilities;
    this.#log = log;
  }

  /** Takes one event; whether it was `ready`. Events of a newer sidecar are ignored. */
  handle(event: CallEvent): boolean {
    const data = isRecord(event.data) ? event.data : {};
    if (event.kind === "ready") {
      this.#id = String(data["session"]);
      return true;
    }
    if (event.kind === "call") {
      this.#begin(data);
    } else if (event.kind === "cancel") {
      this.#running.get(String(data["id"]))?.cancel(String(data["reason"] ?? "cancelled"));
    }
    return false;
  }

  /** Waits until nothing runs, for so many milliseconds at most. */
  async drained(milliseconds: number): Promise<void> {
    await within(milliseconds, Promise.all([...this.#running.values()].map((running) => running.done)));
  }

  /** Cancels what runs, and posts nothing more. */
  async end(): Promise<void> {
    this.#over.abort();
    for (const running of this.#running.values()) {
      running.cancel("the connection to the sidecar broke");
    }
    await this.drained(END_MS_MAX);
  }

  #begin(data: Record<string, unknown>): void {
    const name = String(data["capability"]);
    const capability = name.includes(":") || data["version"] === undefined ? name : `${name}:${data["version"]}`;
    const id = String(data["id"]);
    const facts = {
      id,
      capability,
      params: data["params"] ?? null,
      caller: text(data["caller"]),
      thread: text(data["thread"]),
      traceparent: text(data["traceparent"]),
      deadlineMs: typeof data["deadline_ms"] === "number" ? data["deadline_ms"] : undefined,
    };
    const running = new Running((what, body) => this.#post(id, what, body));
    const context = new CallContext(facts, running.signal, (what, body) => running.report(what, body));
    this.#running.set(id, running);
    const work = this.#answer(this.#capabilities.get(capability), context, running);
    running.done = work
      .then((answer) => running.finish(answer))
      .catch((error: unknown) => this.#log.error(`the answer of call ${id} could not be posted:`, error))
      .finally(() => this.#running.delete(id));
  }

  /** Runs the handler; the body of its answer, or undefined when the call was cancelled. */
  async #answer(capability: Capability | undefined, context: CallContext, running: Running): Promise<string | undefined> {
    if (capability === undefined) {
      return failure(4002, `this agent does not serve ${context.capability}`);
    }
    try {
      try {
        return stringify({ result: (await capability.run(context)) ?? null });
      } catch (error) {
        if (error instanceof CallError) {
          return failure(error.code, error.message, error.details);
        }
        throw error;
      }
    } catch (error) {
      if (running.signal.aborted) {
        return undefined;
      }
      // Its text may hold what no caller may see: it stays in this log.
      this.#log.error(`call ${context.id} of ${context.capability} failed:`, error);
      return failure(5001, `the handler failed: ${error instanceof Error ? error.name : typeof error}`);
    }
  }

  /** Posts until an answer comes. Each answer settles the matter, whatever it is. */
  async #post(call: string, what: string, body: string): Promise<void> {
    const target = `${path(`${path("/v1/provide", this.#id)}/calls`, call)}/${what}`;
    const request: Request = { method: "POST", target, headers: { "Content-Type": "application/json", Accept: "application/json" }, body };
    const response = await this.#untilAnswered(request, `${what} of call ${call}`);
    if (response?.status === 409) {
      this.#log.info(`${what} of call ${call} came after its end`);
    } else if (response !== undefined && response.status >= 300) {
      const why = new TextDecoder().decode(response.body.subarray(0, 500));
      this.#log.error(`${what} of call ${call} was refused: HTTP status ${response.status}: ${why}`);
    }
  }

  /** The answer; undefined when the session ends before one comes. */
  async #untilAnswered(request: Request, title: string): Promise<Response | undefined> {
    const backoff = new Backoff();
    while (!this.#over.signal.aborted) {
      try {
        return await this.#transport.exchange(request, { signal: this.#over.signal });
      } catch (error) {
        if (error instanceof TransportError) {
          this.#log.debug(`${title}: ${error.message}`);
          await pause(backoff.pause(), this.#over.signal).catch(() => undefined);
        } else if (!this.#over.signal.aborted) {
          throw error;
        }
      }
    }
    return undefined;
  }
}

/** One call that runs: its cancellation, and what it posts, in order. */
class Running {
  /** Settles once the handler has ended and its answer is posted. */
  done: Promise<void> = Promise.resolve();
  readonly #cancelling = new AbortController();
  readonly #post: (what: string, body: string) => Promise<void>;
  #posts: Promise<void> = Promise.resolve();
  #hasEnded = false;

  constructor(post: (what: string, body: string) => Promise<void>) {
    this.#post = post;
  }

  /** Aborted once the call is cancelled. */
  get signal(): AbortSignal {
    return this.#cancelling.signal;
  }

  /** Aborts the handler's signal. */
  cancel(reason: string): void {
    this.#cancelling.abort(new DOMException(reason, "AbortError"));
  }

  /** Puts a report behind those that are still to be posted. After the handler's end it is dropped. */
  report(what: string, body: unknown): void {
    if (!this.#hasEnded) {
      this.#enqueue(what, stringify(body));
    }
  }

  /** Posts the result behind all reports. */
  async finish(answer: string | undefined): Promise<void> {
    this.#hasEnded = true;
    if (answer !== undefined) {
      this.#enqueue("result", answer);
    }
    await this.#posts;
  }

  #enqueue(what: string, body: string): void {
    this.#posts = this.#posts.then(() => this.#post(what, body));
  }
}

async function within(milliseconds: number, work: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await Promise.race([work, over]);
  clearTimeout(timer);
}

function failure(code: number, message: string, details?: unknown): string {
  return stringify({ error: { code, message, details } });
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** How long the next session waits for handlers of the last one to end. Those that go on have nobody to answer. */
const END_MS_MAX = 1_000;
