/** A sidecar for tests: a function answers each request, on a unix socket of its own. */

import { mkdtempSync, rmSync } from "node:fs";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

import { parse, stringify } from "../src/json.js";

/** One request as it came. */
export interface Seen {
  readonly line: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: unknown;
}

/** Answers one request. */
export type Reply = (request: Seen, response: ServerResponse) => void | Promise<void>;

/** The sidecar, and what it has seen. */
export interface Sidecar {
  readonly address: string;
  readonly seen: Seen[];
  readonly connections: Set<Socket>;
  /** Resolves with the first request that has this line, also when that came before. */
  received(line: string): Promise<Seen>;
}

/** Begins to listen; the test's end ends it. */
export async function sidecar(test: TestContext, reply: Reply): Promise<Sidecar> {
  const folder = mkdtempSync(join(tmpdir(), "capd-"));
  const address = join(folder, "capd.sock");
  const seen: Seen[] = [];
  const connections = new Set<Socket>();
  const waiting: { line: string; resolve: (seen: Seen) => void }[] = [];
  const server = createServer((message, response) => {
    const parts: Buffer[] = [];
    message.on("data", (part: Buffer) => parts.push(part));
    message.on("end", () => {
      const bytes = Buffer.concat(parts);
      const request = { line: `${message.method} ${message.url}`, headers: message.headers, body: bytes.length > 0 ? parse(bytes) : undefined };
      seen.push(request);
      waiting.filter(({ line }) => line === request.line).forEach(({ resolve }) => resolve(request));
      void reply(request, response);
    });
  });
  server.on("connection", (socket) => connections.add(socket));
  await new Promise<void>((resolve) => server.listen(address, resolve));
  test.after(() => {
    connections.forEach((socket) => socket.destroy());
    server.close();
    rmSync(folder, { recursive: true });
  });
  const received = (line: string): Promise<Seen> =>
    new Promise((resolve) => {
      const found = seen.find((each) => each.line === line);
      if (found !== undefined) {
        resolve(found);
      } else {
        waiting.push({ line, resolve });
      }
    });
  return { address, seen, connections, received };
}

/** Sends a whole answer. */
export function send(response: ServerResponse, body: unknown, status = 200, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(status === 204 ? undefined : stringify(body));
}

/** Sends events, and leaves the stream open. */
export function events(response: ServerResponse, ...sent: { event: string; data: unknown; id?: string }[]): void {
  if (!response.headersSent) {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
  }
  for (const { event, data, id } of sent) {
    response.write(`${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${stringify(data)}\n\n`);
  }
}
