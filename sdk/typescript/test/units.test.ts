import assert from "node:assert/strict";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { authority, find, shown } from "../src/address.js";
import { Failed, OutcomeUnknown, Pending, Refused } from "../src/errors.js";
import { EventParser } from "../src/events.js";
import { Patience } from "../src/patience.js";
import { Broken, Late, Response, Unreachable } from "../src/transport.js";

test("the first place of a sidecar wins", () => {
  const cases: [string | undefined, Record<string, string>, unknown][] = [
    ["/a.sock", { CAPD_SOCKET: "/b.sock" }, { path: "/a.sock" }],
    ["unix:///a.sock", {}, { path: "/a.sock" }],
    [undefined, { CAPD_SOCKET: "/b.sock", CAPD_HTTP: "http://127.0.0.1:1" }, { path: "/b.sock" }],
    [undefined, { CAPD_HTTP: "http://127.0.0.1:7003", CAPD_TOKEN: "t" }, { host: "127.0.0.1", port: 7003, token: "t" }],
    [undefined, { CAPD_HTTP: "http://[::1]:7003/" }, { host: "::1", port: 7003, token: undefined }],
    [undefined, { CAPD_HTTP: "http://localhost:80" }, { host: "localhost", port: 80, token: undefined }],
    [undefined, { XDG_STATE_HOME: "/state", HOME: "/home/a" }, { path: "/state/capd/capd.sock" }],
    [undefined, { XDG_STATE_HOME: "", HOME: "/home/a" }, { path: "/home/a/.local/state/capd/capd.sock" }],
  ];
  for (const [address, environment, expected] of cases) {
    assert.deepEqual(find(address, undefined, environment), expected);
  }
  assert.equal(authority({ host: "::1", port: 7, token: undefined }), "[::1]:7");
  assert.equal(shown({ path: "/s" }), "/s");
});

test("the token comes from the argument, the environment, or a file", () => {
  const file = join(tmpdir(), `capd-token-${process.pid}`);
  writeFileSync(file, "from-file\n");
  try {
    const environment = { CAPD_HTTP: "http://localhost:1", CAPD_TOKEN_FILE: file };
    const token = (argument: string | undefined, more: Record<string, string>): unknown => ({ token: undefined, ...find(undefined, argument, { ...environment, ...more }) }).token;
    assert.equal(token(undefined, {}), "from-file");
    assert.equal(token(undefined, { CAPD_TOKEN: "from-env" }), "from-env");
    assert.equal(token("argument", { CAPD_TOKEN: "from-env" }), "argument");
  } finally {
    rmSync(file);
  }
});

test("what is no place of a sidecar is refused", () => {
  for (const address of ["http://example.com:80", "https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/v1", "tcp://127.0.0.1:1", "http://:1", "http://127.0.0.1:1?a"]) {
    assert.throws(() => find(address, undefined, {}), /127\.0\.0\.1/, address);
  }
});

const STREAM = '\ufeff: comment\r\nid: 1\revent:a\ndata: {"x":\ndata: "\u4e16"}\n\nevent: none\n\nretry: 5\ndata:1\n\nid\ndata: [2]\r\n\r\ndata: half';

test("events are the same however their bytes are cut", () => {
  const bytes = new TextEncoder().encode(STREAM);
  const expected = [
    { kind: "a", data: { x: "世" }, id: "1" },
    { kind: "message", data: 1, id: "1" },
    { kind: "message", data: [2], id: "" },
  ];
  for (let size = 1; size <= bytes.length; size += 1) {
    const parser = new EventParser();
    const seen = [];
    for (let at = 0; at < bytes.length; at += size) {
      seen.push(...parser.feed(bytes.subarray(at, at + size)));
    }
    assert.deepEqual(seen, expected, `pieces of ${size}`);
  }
  assert.throws(() => new EventParser().feed(new TextEncoder().encode("data: x\n\n")), SyntaxError);
});

test("attempts back off and end in time", () => {
  for (const [timeout, wait, over] of [[undefined, 30_000, 30_000], [8_000, 30_000, 8_000], [20, 30_000, 20]] as const) {
    let clock = 1000;
    const patience = new Patience(timeout, wait, () => clock);
    const pauses: number[] = [];
    assert.throws(
      () => {
        for (;;) {
          pauses.push(patience.afterFailure(new Unreachable("x"), false));
          clock += pauses.at(-1)!;
        }
      },
      (error) => error instanceof Refused && error.code === 2002,
    );
    assert.ok(clock - 1000 <= over && over - (clock - 1000) <= 2000, `${timeout}: ${clock - 1000}`);
    assert.ok(pauses.every((pause) => pause <= 2000) && (pauses[0] ?? 0) <= 50);
  }
});

test("a request that was sent is never called refused", () => {
  const facts = { call: "c", key: "k" };
  assert.throws(() => new Patience(undefined, 0).afterFailure(new Broken("x"), true, facts), (error) => error instanceof OutcomeUnknown && error.code === 5902 && error.key === "k" && error.call === "c");
  assert.throws(() => new Patience(1000, 0).afterFailure(new Late("x"), true), Pending);
  const patience = new Patience(undefined, 30_000);
  patience.afterFailure(new Broken("x"), true);
  assert.throws(() => patience.afterFailure(new Late("x"), false), OutcomeUnknown);
});

test("only a refusal that says when is tried again", () => {
  const later = new Response(503, { "retry-after": "0" });
  for (const error of [new Failed("x", { retry: "yes" }), new OutcomeUnknown("x", { retry: "yes" }), new Pending("x", { retry: "yes" }), new Refused("x", { retry: "no" })]) {
    assert.throws(() => new Patience(undefined, 30_000).afterRefusal(later, error), (thrown) => thrown === error);
  }
  assert.equal(new Patience(undefined, 30_000).afterRefusal(new Response(503, { "retry-after": "1.5" }), new Refused("x", { retry: "backoff" })), 1500);
  for (const headers of [{}, { "retry-after": "Wed, 21 Oct 2026 07:28:00 GMT" }, { "retry-after": "31" }, { "retry-after": "" }]) {
    assert.throws(() => new Patience(undefined, 30_000).afterRefusal(new Response(503, headers), new Refused("x", { retry: "yes" })), Refused);
  }
});

test("an error shows its class, code, title and call", () => {
  const error = new Refused("params do not fit", { code: 4004, title: "SCHEMA_VIOLATION", call: "c1" });
  assert.equal(String(error), "Refused: 4004 SCHEMA_VIOLATION: params do not fit (call c1)");
  assert.deepEqual([error.name, error.message, error.outcome, error.retry], ["Refused", "params do not fit", "refused", "no"]);
  assert.deepEqual([new Failed("x").outcome, new OutcomeUnknown("x").outcome, new Pending("x").outcome], ["failed", "unknown", "pending"]);
});

test("nothing but node: modules and own files is imported", () => {
  const source = new URL("../../src/", import.meta.url);
  const imported = readdirSync(source).flatMap((file) => [...readFileSync(new URL(file, source), "utf8").matchAll(/ from "([^"]+)"/g)].map(([, name]) => name!));
  assert.ok(imported.length > 20);
  assert.deepEqual(imported.filter((name) => !/^(node:|\.\/)/.test(name)), []);
});
