import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import { type BuiltAgainst, type CallOptions, Client, OutcomeUnknown, Pending, Refused, type Schema } from "../src/index.js";
import { events, send, sidecar } from "./sidecar.js";

const PATH = "/v1/call/com.acme.f";
const CALL = "0000019aa8c0000000000000000000a1";
const ACCEPTED = { event: "accepted", data: { call: CALL }, id: "1" };

test("an answer says what the sidecar says about it", async (t) => {
  const headers = { "Capd-Call": CALL, "Capd-Capability": "com.acme.f:1.0.0", "Capd-Execution-Ms": "12", "Capd-Replayed": "true", Deprecation: "true" };
  const { address, seen } = await sidecar(t, (_, response) => send(response, 2, 200, headers));
  const answer = await new Client({ address }).answer<number>("com.acme.f", 1, { to: "did:key:z", ttl: 90_000, traceparent: "00-1", key: "schlüssel" });
  assert.deepEqual(answer, { value: 2, call: CALL, capability: "com.acme.f:1.0.0", executionMs: 12, replayed: true, deprecated: true });
  assert.equal(seen[0]?.line, `POST ${PATH}?to=did%3Akey%3Az`);
  assert.deepEqual([seen[0]?.headers["capd-ttl"], seen[0]?.headers["traceparent"]], ["90000ms", "00-1"]);
  assert.equal(Buffer.from(String(seen[0]?.headers["idempotency-key"]), "latin1").toString("utf8"), "schlüssel");
});

test("calls at once get their own answers, and share connections afterwards", async (t) => {
  const { address, connections } = await sidecar(t, (request, response) => send(response, [request.body]));
  const client = new Client({ address });
  const numbers = Array.from({ length: 40 }, (_, number) => number);
  assert.deepEqual(await Promise.all(numbers.map((number) => client.call("com.acme.f", number))), numbers.map((number) => [number]));
  const before = connections.size;
  for (const number of numbers) {
    await client.call("com.acme.f", number);
  }
  assert.equal(connections.size, before);
});

test("keys that the client makes differ", async (t) => {
  const { address, seen } = await sidecar(t, (_, response) => send(response, null));
  const client = new Client({ address });
  await Promise.all(Array.from({ length: 50 }, () => client.call("com.acme.f")));
  assert.equal(new Set(seen.map((each) => each.headers["idempotency-key"])).size, 50);
});

test("a stream that is left early does not cancel the call", async (t) => {
  let closed!: () => void;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  const { address, seen } = await sidecar(t, (_, response) => {
    response.on("close", closed);
    events(response, ACCEPTED);
  });
  const stream = new Client({ address }).stream("com.acme.f", 1);
  for await (const event of stream) {
    assert.deepEqual(event, { kind: "accepted", data: { call: CALL }, id: "1" });
    break;
  }
  await isClosed;
  assert.equal(stream.call, CALL);
  assert.deepEqual(seen.map((each) => each.line), [`POST ${PATH}`]);
  await assert.rejects(stream.result(), /closed before its result/);
});

test("a stream is cancelled while somebody waits for its next event", async (t) => {
  const { address, seen } = await sidecar(t, (request, response) => (request.line.startsWith("DELETE") ? send(response, {}, 202) : events(response, ACCEPTED)));
  const stream = new Client({ address }).stream("com.acme.f", 1);
  const iterator = stream[Symbol.asyncIterator]();
  assert.equal((await iterator.next()).value?.kind, "accepted");
  const next = iterator.next();
  await stream.cancel();
  assert.deepEqual(await next, { done: true, value: undefined });
  assert.deepEqual(seen.map((each) => each.line), [`POST ${PATH}`, `DELETE /v1/calls/${CALL}`]);
});

test("a result is there without reading the events", async (t) => {
  const { address } = await sidecar(t, (_, response) => {
    events(response, ACCEPTED, { event: "result", data: { result: { n: 12345678901234567890n } }, id: "2" });
    response.end();
  });
  const stream = new Client({ address }).stream<{ n: bigint }>("com.acme.f", 1);
  assert.deepEqual(await stream.result(), { n: 12345678901234567890n });
  assert.deepEqual(await stream.result(), { n: 12345678901234567890n });
});

test("many events at once are given one by one, in order", async (t) => {
  const { address } = await sidecar(t, (_, response) => {
    events(response, ACCEPTED, ...Array.from({ length: 2000 }, (_, number) => ({ event: "progress", data: { progress_pct: number } })), { event: "result", data: { result: 1 } });
    response.end();
  });
  const seen: unknown[] = [];
  for await (const { kind, data } of new Client({ address }).stream("com.acme.f", 1)) {
    if (kind === "progress") {
      seen.push((data as { progress_pct: number }).progress_pct);
    }
  }
  assert.deepEqual(seen, Array.from({ length: 2000 }, (_, number) => number));
});

test("a signal that is aborted already sends nothing", async (t) => {
  const { address, seen } = await sidecar(t, (_, response) => send(response, 1));
  const client = new Client({ address });
  const signal = AbortSignal.abort(new Error("mine"));
  await assert.rejects(client.call("com.acme.f", 1, { signal }), /mine/);
  await assert.rejects(client.start("com.acme.f", 1, { signal }), /mine/);
  await assert.rejects(client.stream("com.acme.f", 1, { signal }).result(), /mine/);
  await assert.rejects(client.get(CALL, { signal }), /mine/);
  assert.deepEqual(seen, []);
});

test("a signal's own reason is what the caller gets, after the sidecar knows", async (t) => {
  const user = new AbortController();
  const { address, seen } = await sidecar(t, (request, response) => {
    if (request.headers["prefer"] === "respond-async") {
      send(response, {}, 202, { "Capd-Call": CALL });
    } else if (request.line.startsWith("DELETE")) {
      send(response, {}, 202);
    } else {
      user.abort(new RangeError("enough"));
    }
  });
  await assert.rejects(new Client({ address }).call("com.acme.f", 1, { signal: user.signal }), RangeError);
  assert.deepEqual(seen.map((each) => each.line), [`POST ${PATH}`, `POST ${PATH}`, `DELETE /v1/calls/${CALL}`]);
  assert.equal(seen[0]?.headers["idempotency-key"], seen[1]?.headers["idempotency-key"]);
});

test("an abort while the client waits for a sidecar ends the wait at once", async () => {
  const user = new AbortController();
  const call = new Client({ address: "/nowhere/capd.sock" }).call("com.acme.f", 1, { signal: user.signal });
  setImmediate(() => user.abort());
  await assert.rejects(call, { name: "AbortError" });
});

test("what cannot be sent is an error before anything is", async (t) => {
  const { address, seen } = await sidecar(t, (_, response) => send(response, 1));
  const client = new Client({ address });
  const cases: [unknown, CallOptions, RegExp][] = [
    [NaN, {}, /NaN/],
    [new Map(), {}, /Map/],
    [1, { key: "" }, /key/],
    [1, { key: "a\nb" }, /control/],
    [1, { key: "ü".repeat(128) }, /255 bytes/],
    [1, { timeout: 0 }, /above 0/],
    [1, { timeout: Infinity }, /above 0/],
    [1, { ttl: NaN }, /ttl/],
    [1, { thread: "a\r\nX: y" }, /control/],
  ];
  for (const [params, options, message] of cases) {
    await assert.rejects(client.call("com.acme.f", params, options), { name: "TypeError", message });
    assert.throws(() => client.stream("com.acme.f", params, options), { name: "TypeError", message });
  }
  assert.deepEqual(seen, []);
});

test("an error carries its key, status and call", async (t) => {
  const problem = { title: "SCHEMA_VIOLATION", detail: "params do not fit", code: 4004, outcome: "refused", retry: "no", call: CALL };
  const { address } = await sidecar(t, (_, response) => send(response, problem, 422));
  await assert.rejects(new Client({ address }).call("com.acme.f", 1, { key: "order-17" }), (error) => {
    assert.ok(error instanceof Refused);
    assert.deepEqual([error.key, error.status, error.call, error.title], ["order-17", 422, CALL, "SCHEMA_VIOLATION"]);
    return true;
  });
});

test("an event that is no JSON leaves the outcome unknown", async (t) => {
  const { address } = await sidecar(t, (_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream", "Capd-Call": CALL });
    response.write("event: result\ndata: {\n\n");
  });
  await assert.rejects(new Client({ address }).stream("com.acme.f", 1).result(), (error) => error instanceof OutcomeUnknown && error.call === CALL);
});

test("a late answer is pending after the grace, not after the waiting time", async (t) => {
  const { address } = await sidecar(t, () => {});
  const begin = performance.now();
  await assert.rejects(new Client({ address }).call("com.acme.f", 1, { timeout: 100 }), Pending);
  assert.ok(performance.now() - begin < 10_000);
});

test("a closed client says so", async () => {
  const client = new Client({ address: "/nowhere/capd.sock" });
  client.close();
  await assert.rejects(client.self(), /closed/);
});

test("limits of lists go to the sidecar", async (t) => {
  const { address, seen } = await sidecar(t, (_, response) => send(response, { capabilities: [{ id: 1 }, { id: 2 }], next_cursor: "c" }));
  assert.equal((await new Client({ address }).capabilities({ limit: 2 })).length, 2);
  assert.deepEqual(seen.map((each) => each.line), ["GET /v1/capabilities?limit=2"]);
});

test("generated code compiles against the contract", () => {
  // As capctl gen writes it: types only.
  const input: Schema = { sha256: "0".repeat(64), json: "{}" };
  const builtAgainst: BuiltAgainst = { input };
  const translate = (client: Client, request: { text: string }, options: CallOptions = {}): Promise<{ text: string }> =>
    client.call<{ text: string }>("com.acme.translate", request, { version: ">=1.0.0", ...options, builtAgainst });
  assert.equal(typeof translate, "function");
});

test("a model's arguments are the params, or hold them", async (t) => {
  const { address } = await sidecar(t, (_, response) => send(response, { tools: [], names: { f: "com.acme.f:1.0.0", w: "com.acme.w:1.0.0" }, wrapped: ["w"] }));
  const tools = await new Client({ address }).tools("mcp");
  assert.deepEqual([tools.params("f", { a: 1 }), tools.params("f", ""), tools.params("f", undefined), tools.params("f", '{"n":9007199254740993}')], [{ a: 1 }, {}, {}, { n: 9007199254740993n }]);
  assert.deepEqual([tools.params("w", { value: "x" }), tools.params("w", '{"value":null}')], ["x", null]);
  for (const given of ["{", "[1]", { val: 1 }]) {
    assert.throws(() => tools.params("w", given), (error) => error instanceof Refused && error.code === 4001);
  }
  assert.throws(() => tools.capability("made_up"), (error) => error instanceof Refused && error.code === 4002 && error.message.includes("f, w"));
});

test("many calls share one signal without a warning, and leave no listener behind", async (t) => {
  const warnings: string[] = [];
  const note = (warning: Error): number => warnings.push(warning.name);
  process.on("warning", note);
  t.after(() => process.off("warning", note));
  const { address } = await sidecar(t, (_, response) => send(response, 1));
  const client = new Client({ address });
  const { signal } = new AbortController();
  await Promise.all(Array.from({ length: 50 }, () => client.call("com.acme.f", 1, { signal })));
  await Promise.all(Array.from({ length: 50 }, () => client.stream("com.acme.f", 1, { signal }).result()));
  assert.equal(getEventListeners(signal, "abort").length, 0);
  assert.deepEqual(warnings, []);
});
