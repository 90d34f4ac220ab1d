/** The SDK against real sidecars: an agent and its `capd` on each side, joined by a peer link. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";

import { Agent, type CallContext, CallError, Client, Failed, LosslessNumber, OutcomeUnknown, Pending, Refused } from "../src/index.js";
import { pause } from "../src/transport.js";
import { Capd } from "./capd.js";

const options = { skip: process.env["CAPD_BIN"] ? false : "CAPD_BIN, the path of a capd, is not set", timeout: 60_000 };
const TEXT = { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: false };

/** A promise that somebody else resolves. */
function event(): { promise: Promise<void>; set: () => void } {
  let set!: () => void;
  return { promise: new Promise((resolve) => (set = resolve)), set };
}

interface Sides {
  readonly caller: Capd;
  readonly provider: Capd;
  readonly agent: Agent;
  readonly client: Client;
  readonly runs: unknown[];
  readonly begun: ReturnType<typeof event>;
  readonly goOn: ReturnType<typeof event>;
  readonly cancelled: ReturnType<typeof event>;
}

/** A caller's side, and a provider's side that serves. */
async function sides(t: TestContext): Promise<Sides> {
  const folder = mkdtempSync(join(tmpdir(), "capd-"));
  const provider = new Capd(join(folder, "provider"));
  const caller = new Capd(join(folder, "caller"), [provider]);
  const agent = new Agent({ address: provider.socket, log: { debug() {}, info() {}, warn() {}, error() {} } });
  t.after(async () => {
    goOn.set();
    await agent.stop();
    await Promise.all([caller.kill(), provider.kill()]);
    rmSync(folder, { recursive: true });
  });
  const [begun, goOn, cancelled] = [event(), event(), event()];
  const runs: unknown[] = [];
  agent.provide("com.acme.upper", { version: "1.2.0", idempotent: true, input: TEXT, output: TEXT }, ({ text }) => ({ text: text.toUpperCase() }));
  agent.provide("com.acme.echo", { idempotent: true }, (params) => params);
  agent.provide("com.acme.order", {}, async (params) => {
    runs.push(params);
    begun.set();
    await goOn.promise;
    return { order: runs.length };
  });
  agent.provide("com.acme.wait", {}, async (_, call: CallContext) => {
    begun.set();
    await new Promise((resolve) => call.signal.addEventListener("abort", resolve));
    cancelled.set();
    throw call.signal.reason;
  });
  agent.provide("com.acme.report", {}, (_, call) => {
    call.status("reading");
    call.progress(40);
    call.ask("Which?");
    return 42;
  });
  agent.provide("com.acme.fail", {}, ({ kind }) => {
    throw kind === "mine" ? new CallError(6001, "no such language", { language: "xx", limit: 9007199254740993n }) : new Error("password is hunter2");
  });
  // The agent and the client begin before their sidecars.
  void agent.serve();
  const client = new Client({ address: caller.socket });
  const self = client.self();
  await provider.start();
  await caller.start();
  assert.equal((await self)["did"], caller.announcement["did"]);
  await agent.ready();
  while (!(await client.capabilities({ namespace: "com.acme" })).some((each) => String(each["id"]).startsWith("com.acme.wait"))) {
    await pause(20);
  }
  return { caller, provider, agent, client, runs, begun, goOn, cancelled };
}

test("calls reach the peer's agent, with all digits, and each outcome is its class", options, async (t) => {
  const { client, provider } = await sides(t);
  const answer = await client.answer("com.acme.upper", { text: "hello" }, { version: ">=1.0.0 <2.0.0" });
  assert.deepEqual([answer.value, answer.capability, answer.replayed], [{ text: "HELLO" }, "com.acme.upper:1.2.0", false]);
  const values = [0, -1, 9007199254740993n, 18446744073709551615n, -9223372036854775808n, 0.1, 1e300, "😀\u0000\u2028", { "": null, __proto__x: [] }, true];
  assert.deepEqual(await client.call("com.acme.echo", values), values);
  assert.deepEqual(await new Client({ address: provider.http, token: provider.token }).call("com.acme.upper", { text: "x" }), { text: "X" });

  const failure = async (name: string, params: unknown, more = {}): Promise<unknown> => client.call(name, params, more).then(() => assert.fail(name), (error: unknown) => error);
  const violation = await failure("com.acme.upper", { text: 1 });
  assert.ok(violation instanceof Refused && violation.code === 4004);
  assert.equal((violation.details as { violations: { path: string }[] }).violations[0]?.path, "/text");
  const unknown = await failure("com.acme.nothing", 1);
  assert.ok(unknown instanceof Refused && unknown.code === 4002);
  const version = await failure("com.acme.upper", { text: "x" }, { version: "7.0.0" });
  assert.ok(version instanceof Refused && version.code === 4003);
  const mine = await failure("com.acme.fail", { kind: "mine" });
  assert.ok(mine instanceof Failed && mine.code === 6001 && mine.call !== undefined);
  assert.deepEqual([mine.message, mine.details], ["no such language", { language: "xx", limit: 9007199254740993n }]);
  const crash = await failure("com.acme.fail", { kind: "crash" });
  assert.ok(crash instanceof Failed && crash.code === 5001 && !String(crash).includes("hunter2"));
  await failure("com.acme.echo", new LosslessNumber("1E+400")).then((error) => assert.ok(error instanceof Refused, String(error)));
});

test("a stream tells how the call goes, and a tool is a call", options, async (t) => {
  const { client } = await sides(t);
  const stream = client.stream<number>("com.acme.report");
  const told = new Map<string, unknown>();
  for await (const { kind, data } of stream) {
    told.set(kind, data);
  }
  assert.equal(await stream.result(), 42);
  assert.equal((told.get("progress") as { progress_pct: number }).progress_pct, 40);
  assert.equal((told.get("processing") as { status_text: string }).status_text, "reading");
  assert.equal((told.get("input_required") as { prompt: string }).prompt, "Which?");
  const tools = await client.tools("anthropic", { namespace: "com.acme" });
  const name = [...tools.names].find(([, id]) => id === "com.acme.upper:1.2.0")?.[0] ?? "";
  assert.deepEqual(await client.callTool(tools, name, '{"text": "a"}'), { text: "A" });
});

test("aborting and cancelling by id end the call at the provider", options, async (t) => {
  const { client, begun, cancelled } = await sides(t);
  const user = new AbortController();
  const call = client.call("com.acme.wait", null, { signal: user.signal });
  await begun.promise;
  user.abort();
  await assert.rejects(call, { name: "AbortError" });
  await cancelled.promise;
  const id = await client.start("com.acme.wait");
  assert.equal(await client.cancel(id), true);
  await assert.rejects(client.result(id), (error) => error instanceof Failed && error.code === 4901);
  assert.equal(await client.cancel(id), false);
  assert.ok((await client.calls({ role: "made" })).some((each) => each["id"] === id));
  await assert.rejects(client.call("com.acme.wait", null, { timeout: 300 }), (error) => (error instanceof Failed || error instanceof Pending) && error.code === 5003);
});

test("a key runs once, however often and however much at once it is asked for", options, async (t) => {
  const { client, begun, goOn, runs } = await sides(t);
  const calls = Array.from({ length: 8 }, () => client.call("com.acme.order", { n: 1 }, { key: "order-17" }));
  await begun.promise;
  goOn.set();
  assert.deepEqual(await Promise.all(calls), Array(8).fill({ order: 1 }));
  assert.equal((await client.answer("com.acme.order", { n: 1 }, { key: "order-17" })).replayed, true);
  await assert.rejects(client.call("com.acme.order", { n: 2 }, { key: "order-17" }), (error) => error instanceof Refused && error.code === 4001 && error.status === 422);
  assert.deepEqual(runs, [{ n: 1 }]);
});

test("a call runs once although its caller's sidecar dies under it", options, async (t) => {
  const { client, caller, begun, goOn, runs } = await sides(t);
  const call = client.call("com.acme.order", 1);
  const stream = client.stream("com.acme.order", 2, { key: "k" });
  const iterator = stream[Symbol.asyncIterator]();
  assert.equal((await iterator.next()).value?.kind, "accepted");
  await begun.promise;
  await caller.kill();
  await caller.start();
  goOn.set();
  const results = [await call, await stream.result()];
  assert.equal(runs.length, 2);
  assert.ok(results.every((result) => typeof (result as { order: number }).order === "number"));
});

test("a call whose provider's sidecar dies is unknown, and the provider serves again", options, async (t) => {
  const { client, provider, begun, goOn, runs } = await sides(t);
  const call = client.call("com.acme.order", 1, { key: "k" });
  await begun.promise;
  const ended = assert.rejects(call, (error) => error instanceof OutcomeUnknown && error.code === 5902);
  await provider.kill();
  await provider.start();
  goOn.set();
  await ended;
  await assert.rejects(client.call("com.acme.order", 1, { key: "k" }), OutcomeUnknown);
  assert.deepEqual(runs, [1]);
  const local = new Client({ address: provider.socket });
  while ((await local.capabilities()).length === 0) {
    await pause(20);
  }
  assert.deepEqual(await local.call("com.acme.upper", { text: "again" }), { text: "AGAIN" });
});

test("a refused declaration ends the agent; stopping one withdraws what it serves", options, async (t) => {
  const { agent, provider } = await sides(t);
  const bad = new Agent({ address: provider.socket }).provide("com.acme.bad", { input: { type: "string", format: "phone" } }, () => 1);
  await assert.rejects(bad.serve(), (error) => error instanceof Refused && error.message.includes("phone"));
  await agent.stop();
  const local = new Client({ address: provider.socket });
  while ((await local.capabilities()).length > 0) {
    await pause(20);
  }
  await assert.rejects(local.call("com.acme.echo", 1, { timeout: 5000 }), (error) => error instanceof Refused && error.code === 4002);
});
