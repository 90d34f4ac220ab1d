import assert from "node:assert/strict";
import { test } from "node:test";

import fc from "fast-check";

import { parse, stringify } from "../src/json.js";

/** The text of any JSON value: integers of any length, decimals with an exponent, and strings of every code point. */
const { value } = fc.letrec<{ value: string }>((tie) => {
  const text = fc.string({ unit: "binary" }).map((text) => JSON.stringify(text));
  const integer = fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }).map(String);
  const decimal = fc.tuple(fc.bigInt({ min: -(10n ** 20n), max: 10n ** 20n }), fc.nat(10 ** 9), fc.integer({ min: -400, max: 400 }));
  const number = fc.oneof(integer, fc.double({ noNaN: true, noDefaultInfinity: true }).map(String), decimal.map(([whole, part, power]) => `${whole}.${part}e${power}`));
  const members = fc.array(fc.tuple(text, tie("value")), { maxLength: 4 });
  return {
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.constantFrom("null", "true", "false"),
      text,
      number,
      fc.array(tie("value"), { maxLength: 4 }).map((items) => `[${items.join(",")}]`),
      // A name that stands twice is one member.
      members.map((members) => `{${[...new Map(members)].map(([name, value]) => `${name}:${value}`).join(",")}}`),
    ),
  };
});

test("every number keeps its digits and every text its code points", () => {
  fc.assert(
    fc.property(value, (text) => {
      assert.deepEqual(tokens(stringify(parse(text))).sort(), tokens(text).sort());
    }),
    { numRuns: 2_000 },
  );
});

/** The scalars of a JSON text, each in one form only; objects may be written in another order. */
function tokens(text: string): string[] {
  const found = text.match(/"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|null|true|false|[[\]{}]/g) ?? [];
  return found.map((token) => (/^[-0-9]/.test(token) ? digits(token) : token.startsWith('"') ? codePoints(token) : token));
}

function codePoints(token: string): string {
  const text: unknown = JSON.parse(token);
  return `text ${[...String(text)].map((point) => point.codePointAt(0)).join(" ")}`;
}

/** Sign, digits without zeros at their end, and exponent. */
function digits(token: string): string {
  const [mantissa = "", exponent = "0"] = token.toLowerCase().split("e");
  const [whole = "", part = ""] = mantissa.replace("-", "").split(".");
  const all = (whole + part).replace(/^0+/, "");
  const short = all.replace(/0+$/, "");
  if (short === "") {
    return "0";
  }
  return `${token.startsWith("-") ? "-" : ""}${short}e${Number(exponent) - part.length + (all.length - short.length)}`;
}
