import assert from "node:assert/strict";
import { test } from "node:test";

import { LosslessNumber, parse, stringify } from "../src/json.js";

test("a number is of the first kind that holds each of its digits", () => {
  const kinds: [string, unknown][] = [
    ["0", 0],
    ["9007199254740991", 9007199254740991],
    ["-9007199254740991", -9007199254740991],
    ["9007199254740992", 9007199254740992n],
    ["18446744073709551615", 18446744073709551615n],
    ["-9223372036854775808", -9223372036854775808n],
    ["0.1", 0.1],
    ["1e3", 1000],
    ["1.50", 1.5],
    ["0.30000000000000004", 0.30000000000000004],
    ["5e-324", 5e-324],
    ["0.00e400", 0],
    ["123456789.123456789012345678901", new LosslessNumber("123456789.123456789012345678901")],
    ["0.1000000000000000000001", new LosslessNumber("0.1000000000000000000001")],
    ["1E+400", new LosslessNumber("1E+400")],
    ["1e-400", new LosslessNumber("1e-400")],
    ["9007199254740993.0", new LosslessNumber("9007199254740993.0")],
  ];
  for (const [text, value] of kinds) {
    assert.deepEqual(parse(text), value, text);
    assert.deepEqual(parse(`{"a": [${text} , ${text}]}`), { a: [value, value] }, text);
  }
});

test("what is read is written with the same value", () => {
  for (const text of ['[9007199254740993,-1,1E+400,0.1,"9007199254740993","1e400"]', '{"":1,"__proto__":{"n":12345678901234567890},"a\\"b\\\\":[]}', '"\\ud83d\\ude00\\u2028"']) {
    const again = stringify(parse(text));
    assert.deepEqual(parse(again), parse(text));
  }
  assert.equal(stringify(parse('{"__proto__":12345678901234567890}')), '{"__proto__":12345678901234567890}');
});

test("random decimals keep their digits", () => {
  for (let round = 0; round < 2000; round += 1) {
    const digits = Array.from({ length: 1 + Math.floor(Math.random() * 25) }, () => Math.floor(Math.random() * 10)).join("").replace(/^0+(?=\d)/, "");
    const text = `${Math.random() < 0.5 ? "-" : ""}${digits}.${Math.floor(Math.random() * 1e6)}${Math.random() < 0.3 ? `e${Math.floor(Math.random() * 40) - 20}` : ""}`;
    assert.equal(decimal(stringify(parse(text))), decimal(text), text);
  }
});

/** Sign, digits and exponent by big integers: another way than that of the code under test. */
function decimal(text: string): string {
  const [mantissa = "", exponent = "0"] = text.toLowerCase().split("e");
  const [whole = "", fraction = ""] = mantissa.replace("-", "").split(".");
  let digits = BigInt(whole + fraction);
  let power = Number(exponent) - fraction.length;
  while (digits !== 0n && digits % 10n === 0n) {
    digits /= 10n;
    power += 1;
  }
  return digits === 0n ? "0" : `${text.startsWith("-") ? "-" : ""}${digits}e${power}`;
}

test("a text that looks like a number stays a text", () => {
  assert.deepEqual(parse('["12345678901234567890", 12345678901234567890, "a\\\\", "\\"1e999"]'), ["12345678901234567890", 12345678901234567890n, "a\\", '"1e999']);
});

test("what is no JSON is an error", () => {
  for (const text of ["", "01", "1.", ".5", "+1", "NaN", "Infinity", "[1,]", "{a:1}", "'a'", "[12345678901234567890", "1 2"]) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
  assert.throws(() => parse(Uint8Array.of(0x22, 0xff, 0x22)), /UTF-8/);
  assert.throws(() => new LosslessNumber("1.0.0"), SyntaxError);
});

test("what has no form in JSON is an error with its place", () => {
  const loop: Record<string, unknown> = {};
  loop["loop"] = loop;
  const cases: [unknown, RegExp][] = [
    [{ a: [1, NaN] }, /^\/a\/1: NaN/],
    [{ "a/b~": Infinity }, /^\/a~1b~0: Infinity/],
    [() => 1, /^\/: a function/],
    [[Symbol("x")], /^\/0: a symbol/],
    [{ m: new Map() }, /^\/m: a Map/],
    [new Set(), /a Set/],
    [new Uint8Array(1), /a Uint8Array/],
    ["\ud800", /lone surrogate/],
    [{ "\udc00": 1 }, /lone surrogate/],
    [loop, /contains itself/],
  ];
  for (const [value, message] of cases) {
    assert.throws(() => stringify(value), { name: "TypeError", message }, String(message));
  }
});

test("values are written as JSON.stringify writes them", () => {
  const values = [undefined, null, { a: undefined, b: [undefined] }, new Date(0), "\u0000\u2028</script>", [1e21, 1e-7, -0, 0.1], { toJSON: () => [1] }, new String("s"), Object.create(null)];
  for (const value of values) {
    assert.equal(stringify(value), JSON.stringify(value) ?? "null");
  }
  assert.equal(stringify([12345678901234567890n, new LosslessNumber("1E+400")]), "[12345678901234567890,1E+400]");
  assert.equal(Number(new LosslessNumber("1.5e0")), 1.5);
});
