/** Reads server-sent events: bytes in, events out. */

import { parse } from "./json.js";

/** One event of a call: `accepted`, `processing`, `progress`, `input_required`, and at last `result`. */
export interface CallEvent {
  /** The event's name. A newer sidecar may send names that this version does not know. */
  readonly kind: string;
  /** The event's data, any JSON value. */
  readonly data: unknown;
  /** The event's id, after which a stream resumes. */
  readonly id?: string | undefined;
}

/** Reads events from the bytes of a stream, however these are cut. */
export class EventParser {
  // Removes the byte order mark that a stream may begin with.
  #decoder = new TextDecoder("utf-8");
  #line = "";
  #afterCr = false;
  #kind = "";
  #data: string[] = [];
  #id: string | undefined;

  /**
   * The events that these bytes complete.
   *
   * @throws SyntaxError for data that is no JSON
   */
  feed(bytes: Uint8Array): CallEvent[] {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") {
      return [];
    }
    if (this.#afterCr && text.startsWith("\n")) {
      text = text.slice(1);
    }
    this.#afterCr = text === "" ? false : text.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    const rest = lines.pop() ?? "";
    const events: CallEvent[] = [];
    for (const line of lines) {
      const event = this.#take(this.#line + line);
      this.#line = "";
      if (event !== undefined) {
        events.push(event);
      }
    }
    this.#line += rest;
    return events;
  }

  #take(line: string): CallEvent | undefined {
    if (line === "") {
      return this.#dispatch();
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") {
      this.#data.push(value);
    } else if (name === "event") {
      this.#kind = value;
    } else if (name === "id" && !value.includes("\0")) {
      this.#id = value;
    }
    return undefined;
  }

  #dispatch(): CallEvent | undefined {
    const [kind, data] = [this.#kind, this.#data];
    this.#kind = "";
    this.#data = [];
    return data.length === 0 ? undefined : { kind: kind || "message", data: parse(data.join("\n")), id: this.#id };
  }
}
