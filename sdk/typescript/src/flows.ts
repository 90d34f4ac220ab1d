/** The requests of a client: what is sent, what is sent again, and what comes of it. */

import { type Call, path, target } from "./call.js";
import { OutcomeUnknown } from "./errors.js";
import type { CallEvent } from "./events.js";
import { parse } from "./json.js";
import type { Answer, Schema } from "./options.js";
import { Backoff, Patience } from "./patience.js";
import { isRecord, ofProblem, ofResponse } from "./problem.js";
import { Broken, type EventStream, type Limits, type Request, type Response, type Transport, TransportError, Unreadable, pause } from "./transport.js";

/** What a flow works with: the connections, and how long it waits for a sidecar that cannot be reached. */
export interface Means {
  readonly transport: Transport;
  readonly wait: number;
}

/** Calls and waits for the result. */
export async function call(made: Call, means: Means): Promise<Answer> {
  const request = made.request();
  const response = await answer(made, new Patience(made.timeout, means.wait), means, (limits) => means.transport.exchange(request, limits), request);
  return result(made, response);
}

/** Starts a call; its id. */
export async function start(made: Call, means: Means): Promise<string> {
  const request = made.request({ Prefer: "respond-async" });
  const response = await answer(made, new Patience(made.timeout, means.wait), means, (limits) => means.transport.exchange(request, limits), request);
  if (made.id === undefined) {
    throw new OutcomeUnknown("the sidecar's answer has no call id", { code: 1001, status: response.status, key: made.key });
  }
  return made.id;
}

/** Yields the events of a call; returns its result. */
export async function* stream(made: Call, means: Means): AsyncGenerator<CallEvent, unknown, undefined> {
  const patience = new Patience(made.timeout, means.wait);
  for (;;) {
    made.lastEventId = "";
    const request = made.request({ Accept: EVENT_STREAM });
    let events: EventStream | undefined;
    const response = await answer(
      made,
      patience,
      means,
      async (limits) => {
        const opened = await means.transport.open(request, limits);
        events = opened.stream;
        return opened.response;
      },
      request,
    );
    if (events === undefined) {
      return result(made, response).value;
    }
    const last = (yield* read(events, made, patience)) ?? (yield* resume(made, patience, means));
    if (last !== undefined) {
      return resultOf(last, made.id, made.key);
    }
  }
}

/** The result of a call that was started before. */
export async function waitFor(id: string, means: Means, signal: AbortSignal | undefined): Promise<unknown> {
  const made = { id, key: undefined, lastEventId: "", signal };
  const events = resume(made, new Patience(undefined, means.wait), means);
  let next = await events.next();
  while (next.done !== true) {
    next = await events.next();
  }
  if (next.value !== undefined) {
    return resultOf(next.value, id, undefined);
  }
  // A sidecar that has restarted has no events of the call, and may still know how it ended.
  const backoff = new Backoff();
  for (;;) {
    const known = await get(path("/v1/calls", id), {}, means, signal);
    if (isRecord(known) && "result" in known) {
      return known["result"];
    }
    if (isRecord(known) && "error" in known) {
      throw ofProblem(known["error"], undefined, id);
    }
    if (isRecord(known) && (known["state"] === "finished" || known["state"] === "unknown")) {
      const message = "the sidecar has no record of the call's answer; ask again with the call's key";
      throw new OutcomeUnknown(message, { code: 5902, title: "INTERRUPTED", call: id });
    }
    await pause(backoff.pause(), signal);
  }
}

/** Cancels a call; whether it had not ended before. */
export async function cancel(id: string, means: Means, signal?: AbortSignal): Promise<boolean> {
  const response = await safe({ method: "DELETE", target: path("/v1/calls", id), headers: { Accept: "application/json" } }, means, signal);
  if (response.status === 409) {
    return false;
  }
  if (response.status >= 300) {
    throw ofResponse(response);
  }
  return true;
}

/** Cancels a call whose user has gone, if the sidecar has it. Never starts one that was not sent. */
export async function cancelCall(made: Call, means: Means, milliseconds: number): Promise<void> {
  if (!made.wasSent) {
    return;
  }
  const signal = AbortSignal.timeout(milliseconds);
  if (made.id === undefined) {
    // The same key joins the call, and tells its id without waiting for its end.
    const response = await means.transport.exchange(made.request({ Prefer: "respond-async" }), { signal });
    if (response.status !== 202) {
      return;
    }
    noteId(made, response);
  }
  if (made.id !== undefined) {
    await cancel(made.id, means, signal);
  }
}

/** Reads one document. */
export async function get(place: string, query: Readonly<Record<string, string | number | undefined>>, means: Means, signal: AbortSignal | undefined): Promise<unknown> {
  const response = await safe({ method: "GET", target: target(place, query), headers: { Accept: "application/json" } }, means, signal);
  if (response.status >= 300) {
    throw ofResponse(response);
  }
  return documentOf(response, response.header("capd-call"), undefined);
}

/** The items of all pages, or the first `limit` of them. */
export async function pages(
  place: string,
  member: string,
  query: Readonly<Record<string, string | number | undefined>>,
  limit: number | undefined,
  means: Means,
  signal: AbortSignal | undefined,
): Promise<unknown[]> {
  const items: unknown[] = [];
  let cursor: string | undefined;
  for (;;) {
    const left = limit === undefined ? undefined : Math.min(limit - items.length, PAGE_ITEMS_MAX);
    const page = await get(place, { ...query, limit: left, cursor }, means, signal);
    if (!isRecord(page) || !Array.isArray(page[member])) {
      throw new TypeError(`the sidecar's answer has no list ${member}`);
    }
    items.push(...(page[member] as unknown[]));
    cursor = typeof page["next_cursor"] === "string" ? page["next_cursor"] : undefined;
    if (cursor === undefined || (limit !== undefined && items.length >= limit)) {
      return limit === undefined ? items : items.slice(0, limit);
    }
  }
}

/** What resuming needs to know of a call. */
type Resumable = Pick<Call, "id" | "lastEventId" | "signal"> & { readonly key: string | undefined };

/** Reads on after a break, until the last event. Undefined when the sidecar does not know the call. */
async function* resume(made: Resumable, patience: Patience, means: Means): AsyncGenerator<CallEvent, CallEvent | undefined, undefined> {
  while (made.id !== undefined) {
    const headers: Record<string, string> = { Accept: EVENT_STREAM };
    if (made.lastEventId !== "") {
      headers["Last-Event-ID"] = made.lastEventId;
    }
    const request: Request = { method: "GET", target: `${path("/v1/calls", made.id)}/events`, headers };
    let opened: Awaited<ReturnType<Transport["open"]>>;
    try {
      opened = await means.transport.open(request, { deadline: patience.deadline, signal: made.signal });
    } catch (error) {
      await pause(afterFailure(patience, error, request.written === true, made), made.signal);
      continue;
    }
    if (opened.response.status === 404) {
      return undefined;
    }
    if (opened.stream === undefined) {
      await pause(patience.afterRefusal(opened.response, ofResponse(opened.response, made.key, made.id)), made.signal);
      continue;
    }
    const last = yield* read(opened.stream, made, patience);
    if (last !== undefined) {
      return last;
    }
  }
  return undefined;
}

/** Yields what the open stream gives; the last event, or undefined where the stream ended or broke before it. */
async function* read(events: EventStream, made: Resumable, patience: Patience): AsyncGenerator<CallEvent, CallEvent | undefined, undefined> {
  try {
    for (;;) {
      let event: CallEvent | undefined;
      try {
        event = await events.next({ deadline: patience.deadline, signal: made.signal });
      } catch (error) {
        if (error instanceof Unreadable) {
          throw new OutcomeUnknown(`an event of the stream is not JSON: ${error.message}`, { code: 1001, call: made.id, key: made.key });
        }
        await pause(afterFailure(patience, error, true, made), made.signal);
        return undefined;
      }
      if (event === undefined) {
        await pause(afterFailure(patience, new Broken("the stream ended without a result"), true, made), made.signal);
        return undefined;
      }
      patience.progressed();
      made.lastEventId = event.id || made.lastEventId;
      if (made.id === undefined && event.kind === "accepted" && isRecord(event.data) && typeof event.data["call"] === "string") {
        made.id = event.data["call"];
      }
      if (event.kind === "error") {
        return event;
      }
      yield event;
      if (event.kind === "result") {
        return event;
      }
    }
  } finally {
    events.close();
  }
}

/** The answer to a request that may be repeated: reading, cancelling, putting by content. */
async function safe(request: Request, means: Means, signal: AbortSignal | undefined): Promise<Response> {
  const patience = new Patience(undefined, means.wait);
  for (;;) {
    let response: Response;
    try {
      response = await means.transport.exchange(request, { deadline: performance.now() + means.wait, signal });
    } catch (error) {
      // To repeat it is safe, so nothing about its outcome is in doubt.
      await pause(afterFailure(patience, error, false), signal);
      continue;
    }
    if (response.status !== 429 && response.status !== 503) {
      return response;
    }
    await pause(patience.afterRefusal(response, ofResponse(response)), signal);
  }
}

/** The first answer to a call that is a result, or a stream. Each request that is sent again has the same key. */
async function answer(made: Call, patience: Patience, means: Means, send: (limits: Limits) => Promise<Response>, request: Request): Promise<Response> {
  const limits = { deadline: patience.deadline, signal: made.signal };
  let wasPut = false;
  for (;;) {
    let response: Response;
    try {
      response = await send(limits);
    } catch (error) {
      await pause(afterFailure(patience, error, request.written === true, made), made.signal);
      continue;
    }
    if (response.status < 300) {
      noteId(made, response);
      return response;
    }
    if (response.status === 428 && made.builtAgainst !== undefined && !wasPut) {
      wasPut = true;
      await putSchemas(made, patience, means);
      continue;
    }
    await pause(patience.afterRefusal(response, ofResponse(response, made.key, made.id)), made.signal);
  }
}

async function putSchemas(made: Call, patience: Patience, means: Means): Promise<void> {
  const sides = [made.builtAgainst?.input, made.builtAgainst?.output].filter((side): side is Schema => side !== undefined);
  const schemas = new Map(sides.map((schema) => [schema.sha256, schema.json]));
  for (const [sha256, json] of schemas) {
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    const request: Request = { method: "PUT", target: path("/v1/schemas", sha256), headers, body: json };
    for (;;) {
      let response: Response;
      try {
        response = await means.transport.exchange(request, { deadline: patience.deadline, signal: made.signal });
      } catch (error) {
        await pause(afterFailure(patience, error, false, made), made.signal);
        continue;
      }
      if (response.status < 300) {
        break;
      }
      await pause(patience.afterRefusal(response, ofResponse(response, made.key, made.id)), made.signal);
    }
  }
}

/** The pause after an attempt that failed. Throws what is no failure of the transport, and the error that the user gets. */
function afterFailure(patience: Patience, error: unknown, wasWritten: boolean, made?: Pick<Resumable, "id" | "key">): number {
  if (!(error instanceof TransportError)) {
    throw error;
  }
  return patience.afterFailure(error, wasWritten, { call: made?.id, key: made?.key });
}

function resultOf(last: CallEvent, call: string | undefined, key: string | undefined): unknown {
  if (last.kind === "error") {
    throw ofProblem(last.data, undefined, call, key);
  }
  if (!isRecord(last.data) || !("result" in last.data)) {
    throw new OutcomeUnknown("the last event of the stream has no result", { code: 1001, call, key });
  }
  return last.data["result"];
}

function noteId(made: Call, response: Response): void {
  made.id = response.header("capd-call") ?? made.id ?? /\/v1\/calls\/([^/]+)$/.exec(response.header("location") ?? "")?.[1];
}

function result(made: Call, response: Response): Answer {
  const execution = response.header("capd-execution-ms") ?? "";
  return {
    value: documentOf(response, made.id, made.key),
    call: made.id,
    capability: response.header("capd-capability"),
    executionMs: /^\d+$/.test(execution) ? Number(execution) : undefined,
    replayed: response.header("capd-replayed") === "true",
    deprecated: response.header("deprecation") !== undefined,
  };
}

function documentOf(response: Response, call: string | undefined, key: string | undefined): unknown {
  try {
    return parse(response.body);
  } catch (error) {
    const message = `the sidecar's answer is not JSON: ${error instanceof Error ? error.message : error}`;
    throw new OutcomeUnknown(message, { code: 1001, status: response.status, call, key });
  }
}

const EVENT_STREAM = "text/event-stream";
/** The most items that the sidecar gives on one page. */
const PAGE_ITEMS_MAX = 1000;
