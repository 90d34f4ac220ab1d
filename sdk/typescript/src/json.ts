/**
 * Reads and writes JSON without losing a digit or a code point.
 *
 * A number is a `number` where that holds each of its digits. An integer that it does not hold is a `bigint`; any other
 * number that it does not hold is a {@link LosslessNumber}.
 *
 * @module
 */

/** A number whose digits no `number` and no `bigint` holds, such as `123456789.123456789012345678901`. */
export class LosslessNumber {
  /** The number as JSON writes it. */
  readonly text: string;

  /**
   * @param text a number in the syntax of JSON
   * @throws SyntaxError for anything else
   */
  constructor(text: string) {
    if (!WHOLE_NUMBER.test(text)) {
      throw new SyntaxError(`${JSON.stringify(text)} is not a number of JSON`);
    }
    this.text = text;
  }

  /** The number as JSON writes it. */
  toString(): string {
    return this.text;
  }

  /** The nearest `number`: arithmetic with it loses digits. */
  valueOf(): number {
    return Number(this.text);
  }
}

/**
 * The value of one JSON text.
 *
 * @throws SyntaxError for what is not JSON, and for bytes that are not UTF-8
 */
export function parse(text: string | Uint8Array): unknown {
  const source = typeof text === "string" ? text : decoded(text);
  const value: unknown = JSON.parse(source);
  if (!LONG_NUMBER.test(source)) {
    return value;
  }
  // The text is known to be JSON. Numbers that would lose digits are marked as texts no peer can guess, and read from those.
  const mark = `${crypto.randomUUID()}:`;
  return JSON.parse(marked(source, mark), (_, member: unknown) =>
    typeof member === "string" && member.startsWith(mark) ? number(member.slice(mark.length)) : member,
  );
}

/**
 * The JSON text of a value.
 *
 * Takes what `JSON.stringify` takes, and `bigint` and {@link LosslessNumber}. Members that are `undefined` are left out.
 *
 * @throws TypeError with the place of what has no form in JSON: NaN, a function, a symbol, a `Map` or `Set`, a text with a
 * lone surrogate, a value that contains itself
 */
export function stringify(value: unknown): string {
  return write(value, { path: [], text: "" }) ?? "null";
}

/** Where the writer is, for errors. */
interface Place {
  path: (string | number)[];
  text: string;
}

function write(given: unknown, place: Place): string | undefined {
  const value = hasToJson(given) ? given.toJSON(String(place.path.at(-1) ?? "")) : given;
  switch (typeof value) {
    case "string":
      return writeText(value, place);
    case "number":
      if (!Number.isFinite(value)) {
        throw new TypeError(`${pointer(place)}: ${value} is not JSON`);
      }
      return String(value);
    case "boolean":
    case "bigint":
      return String(value);
    case "undefined":
      return undefined;
    case "object":
      return value === null ? "null" : writeObject(value, place);
    default:
      throw new TypeError(`${pointer(place)}: a ${typeof value} has no form in JSON`);
  }
}

function writeObject(value: object, place: Place): string {
  if (value instanceof LosslessNumber) {
    return value.text;
  }
  if (value instanceof String || value instanceof Number || value instanceof Boolean) {
    return write(value.valueOf(), place) ?? "null";
  }
  if (value instanceof Map || value instanceof Set || ArrayBuffer.isView(value)) {
    throw new TypeError(`${pointer(place)}: a ${value.constructor.name} has no form in JSON; make an array or an object of it`);
  }
  if (place.path.length >= DEPTH_MAX) {
    throw new TypeError(`${pointer({ ...place, path: place.path.slice(0, 8) })}…: nested too deeply, or a value that contains itself`);
  }
  const parts: string[] = [];
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      place.path.push(index);
      parts.push(write(item, place) ?? "null");
      place.path.pop();
    }
    return `[${parts.join(",")}]`;
  }
  for (const [name, member] of Object.entries(value)) {
    place.path.push(name);
    const text = write(member, place);
    if (text !== undefined) {
      parts.push(`${writeText(name, place)}:${text}`);
    }
    place.path.pop();
  }
  return `{${parts.join(",")}}`;
}

function writeText(text: string, place: Place): string {
  if (LONE_SURROGATE.test(text)) {
    throw new TypeError(`${pointer(place)}: a text has a lone surrogate, which is no code point that JSON can carry`);
  }
  return JSON.stringify(text);
}

function hasToJson(value: unknown): value is { toJSON(name: string): unknown } {
  return typeof value === "object" && value !== null && "toJSON" in value && typeof value.toJSON === "function";
}

function pointer(place: Place): string {
  return place.path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("") || "/";
}

function decoded(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new SyntaxError("not UTF-8");
  }
}

/** The text with each number that would lose digits as a marked text. */
function marked(source: string, mark: string): string {
  const parts: string[] = [];
  let copied = 0;
  let at = 0;
  while (at < source.length) {
    const character = source.charCodeAt(at);
    if (character === QUOTE) {
      at = endOfText(source, at);
    } else if (character === MINUS || (character >= ZERO && character <= NINE)) {
      NUMBER.lastIndex = at;
      const text = NUMBER.exec(source)?.[0] ?? source[at]!;
      if (typeof number(text) !== "number") {
        parts.push(source.slice(copied, at), `"${mark}${text}"`);
        copied = at + text.length;
      }
      at += text.length;
    } else {
      at += 1;
    }
  }
  parts.push(source.slice(copied));
  return parts.join("");
}

function endOfText(source: string, start: number): number {
  let at = start + 1;
  while (source.charCodeAt(at) !== QUOTE) {
    at += source.charCodeAt(at) === BACKSLASH ? 2 : 1;
  }
  return at + 1;
}

/** The value of a number's text, in the first kind that holds each of its digits. */
function number(text: string): number | bigint | LosslessNumber {
  const value = Number(text);
  if (/^-?\d+$/.test(text)) {
    return Number.isSafeInteger(value) ? value : BigInt(text);
  }
  return Number.isFinite(value) && canonical(String(value)) === canonical(text) ? value : new LosslessNumber(text);
}

/** Sign, digits without zeros at either end, and exponent: equal for equal numbers. */
function canonical(text: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = PARTS.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const short = digits.replace(/0+$/, "");
  if (short === "") {
    return "0";
  }
  return `${sign}${short}e${BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - short.length)}`;
}

const DEPTH_MAX = 1000;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const WHOLE_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;
const PARTS = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/;
/** A `number` holds every decimal of up to 15 digits; only longer ones, and those with an exponent, need a second look. */
const LONG_NUMBER = /\d[.\d]{15}|\d[eE][-+]?\d/;
const LONE_SURROGATE = /\p{Surrogate}/u;
