import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";

import { CallContext } from "../src/context.js";
import { Agent, CallError, type Logger, SchemaError, type StandardSchema } from "../src/index.js";
import { type Reply, type Sidecar, events, send, sidecar } from "./sidecar.js";

const NAME = "com.acme.f";
const READY = { event: "ready", data: { session: "s", capabilities: [`${NAME}:1.0.0`], concurrency: 64 } };

function call(number: number, params: unknown): { event: string; data: unknown } {
  return { event: "call", data: { id: `c${number}`, capability: NAME, version: "1.0.0", params, deadline_ms: 1000, caller: "did:key:z", thread: "turn", traceparent: null } };
}

/** A sidecar that gives these calls on one stream. */
async function giving(t: TestContext, params: unknown[], reply: Reply = (_, response) => send(response, undefined, 204)): Promise<Sidecar & { stream: Promise<ServerResponse> }> {
  let opened!: (response: ServerResponse) => void;
  const stream = new Promise<ServerResponse>((resolve) => (opened = resolve));
  const played = await sidecar(t, (request, response) => {
    if (request.line !== "POST /v1/provide") {
      return reply(request, response);
    }
    events(response, READY, ...params.map((each, number) => call(number, each)));
    opened(response);
  });
  return { ...played, stream };
}

function logger(): Logger & { lines: string[] } {
  const lines: string[] = [];
  const log = (...parts: unknown[]): number => lines.push(parts.map(String).join(" "));
  return { lines, debug: log, info: log, warn: log, error: log };
}

const result = (number: number): string => `POST /v1/provide/s/calls/c${number}/result`;

/** A schema as libraries make them: takes `{text}`, gives `{text, length}`. */
const TEXT: StandardSchema<{ text: string }, { text: string; length: number }> = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => {
      const text = (value as { text?: unknown } | null)?.text;
      return typeof text === "string" ? { value: { text, length: text.length } } : { issues: [{ message: "is no text", path: ["a/b", { key: "text" }] }] };
    },
    jsonSchema: { input: ({ target }) => ({ target, side: "input" }), output: ({ target }) => ({ target, side: "output" }) },
  },
};

test("a handler gets the values of its schema, and its result is checked", async (t) => {
  const { address, received } = await giving(t, [{ text: "hello" }, { text: 1 }, { text: "" }]);
  const log = logger();
  const agent = new Agent({ address, log }).provide(NAME, { input: TEXT, output: TEXT }, ({ text, length }) => (length > 0 ? { text: text.toUpperCase() } : (null as never)));
  const serving = agent.serve();
  assert.deepEqual((await received(result(0))).body, { result: { text: "HELLO", length: 5 } });
  const refused = { code: 4004, message: "params do not fit the handler's schema", details: { violations: [{ path: "/a~1b/text", message: "is no text", keyword: "type" }], schema_side: "request" } };
  assert.deepEqual((await received(result(1))).body, { error: refused });
  assert.deepEqual((await received(result(2))).body, { error: { code: 5001, message: "the handler failed: TypeError" } });
  await agent.stop();
  await serving;
  assert.ok(log.lines.some((line) => line.includes("does not fit the output schema")));
});

test("the declaration is that of capabilities.yaml", () => {
  const agent = new Agent({ address: "/nowhere" }).provide(
    NAME,
    { idempotent: true, timeout: 1500, permissions: ["network:read"], description: "Does.", input: TEXT, output: { type: "object" }, more: { rateLimit: { requests: 1, period: "1m" } } },
    () => ({}),
  );
  agent.provide(NAME, { version: "2.0.0", input: { "~standard": { ...TEXT["~standard"], jsonSchema: undefined } }, inputSchema: true }, () => ({}));
  assert.deepEqual(agent.declarations, [
    {
      name: NAME,
      version: "1.0.0",
      description: "Does.",
      idempotent: true,
      timeoutMs: 1500,
      permissions: ["network:read"],
      inputSchema: { target: "draft-2020-12", side: "input" },
      outputSchema: { type: "object" },
      rateLimit: { requests: 1, period: "1m" },
    },
    { name: NAME, version: "2.0.0", inputSchema: true },
  ]);
});

test("a schema that cannot be declared is an error where it is given", () => {
  const agent = new Agent({ address: "/nowhere" });
  const silent: StandardSchema = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
  assert.throws(() => agent.provide(NAME, { input: silent }, () => 1), (error) => error instanceof SchemaError && error.message.includes("com.acme.f:1.0.0: input") && error.message.includes("inputSchema"));
  const failing: StandardSchema = { "~standard": { ...silent["~standard"], jsonSchema: { input: () => ({}), output: () => assert.fail("dates have none") } } };
  assert.throws(() => agent.provide(NAME, { output: failing }, () => 1), /com.acme.f:1.0.0: output: .*dates have none/);
});

test("a result or details that are no JSON are the handler's fault", async (t) => {
  const { address, received } = await giving(t, ["result", "details"]);
  const log = logger();
  const agent = new Agent({ address, log }).provide(NAME, {}, (params) => {
    if (params === "details") {
      throw new CallError(6001, "x", { f: () => 1 });
    }
    return { f: () => 1 };
  });
  void agent.serve();
  for (const number of [0, 1]) {
    assert.deepEqual((await received(result(number))).body, { error: { code: 5001, message: "the handler failed: TypeError" } });
  }
  await agent.stop();
  assert.ok(log.lines.some((line) => line.includes("a function has no form in JSON")));
});

test("a call of what is not served is refused", async (t) => {
  const { address, received } = await giving(t, [1]);
  const agent = new Agent({ address, log: logger() }).provide(NAME, { version: "2.0.0" }, () => 1);
  void agent.serve();
  assert.deepEqual((await received(result(0))).body, { error: { code: 4002, message: "this agent does not serve com.acme.f:1.0.0" } });
  await agent.stop();
});

test("reports and the result are posted in order, and a handler sees its call", async (t) => {
  const { address, received, seen } = await giving(t, [{}]);
  const agent = new Agent({ address }).provide(NAME, {}, (_, context) => {
    for (let percent = 0; percent < 20; percent += 1) {
      context.progress(percent);
    }
    return [context.id, context.caller, context.thread, context.traceparent ?? null, context.deadlineMs];
  });
  void agent.serve();
  assert.deepEqual((await received(result(0))).body, { result: ["c0", "did:key:z", "turn", null, 1000] });
  await agent.stop();
  const posts = seen.filter((each) => each.line.includes("/calls/"));
  assert.deepEqual(posts.map((each) => each.body).slice(0, 20), Array.from({ length: 20 }, (_, percent) => ({ progress_pct: percent })));
  assert.equal(posts.length, 21);
});

test("stop lets running calls end", async (t) => {
  const { address, received } = await giving(t, [{}]);
  let goOn!: () => void;
  let begun!: () => void;
  const isBegun = new Promise<void>((resolve) => (begun = resolve));
  const agent = new Agent({ address }).provide(NAME, {}, async () => {
    begun();
    await new Promise<void>((resolve) => (goOn = resolve));
    return "done";
  });
  const serving = agent.serve();
  await isBegun;
  const stopping = agent.stop();
  goOn();
  await stopping;
  await serving;
  assert.deepEqual((await received(result(0))).body, { result: "done" });
});

test("a handler is aborted when the stream breaks, and what it reports later goes nowhere", async (t) => {
  const { address, seen, stream } = await giving(t, [{}]);
  let ended!: (reason: unknown) => void;
  const hasEnded = new Promise((resolve) => (ended = resolve));
  const agent = new Agent({ address, log: logger() }).provide(NAME, {}, async (_, context) => {
    await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
    context.progress(1);
    ended(context.signal.reason);
    return "too late";
  });
  void agent.serve();
  (await stream).destroy();
  const reason = await hasEnded;
  assert.ok(reason instanceof DOMException && reason.name === "AbortError");
  await agent.stop();
  assert.deepEqual(seen.filter((each) => each.line.includes("/calls/")), []);
});

test("serve ends when its signal is aborted, and ready tells that it had begun", async (t) => {
  const { address, stream } = await giving(t, []);
  const user = new AbortController();
  const agent = new Agent({ address }).provide(NAME, {}, () => 1);
  const serving = agent.serve({ signal: user.signal });
  await agent.ready();
  const closed = stream.then((response) => new Promise((resolve) => response.on("close", resolve)));
  user.abort();
  await serving;
  await closed;
  assert.equal(serving, agent.serve());
});

test("an agent that was stopped before it served declares nothing", async (t) => {
  const { address, seen } = await giving(t, []);
  const agent = new Agent({ address }).provide(NAME, {}, () => 1);
  await agent.stop();
  await agent.serve();
  await assert.rejects(agent.ready(), /ended before/);
  assert.deepEqual(seen, []);
});

test("mistakes are errors where they are made", async () => {
  await assert.rejects(new Agent({ address: "/nowhere" }).serve(), /no capability/);
  assert.throws(() => new Agent({ address: "/nowhere", concurrency: 0 }), RangeError);
  const agent = new Agent({ address: "/nowhere" }).provide(NAME, {}, () => 1).provide(NAME, { version: "2.0.0" }, () => 1);
  assert.throws(() => agent.provide(NAME, {}, () => 1), /com.acme.f:1.0.0 is served already/);
  const facts = { id: "c", capability: NAME, params: null, caller: undefined, thread: undefined, traceparent: undefined, deadlineMs: undefined };
  const context = new CallContext(facts, new AbortController().signal, () => assert.fail("posted"));
  for (const percent of [-1, 101, 0.5, NaN]) {
    assert.throws(() => context.progress(percent), /percent/);
  }
  assert.throws(() => context.status(undefined), /status/);
});
