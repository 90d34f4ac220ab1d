// A plain client of the npm SDK 2.x, beside the chain through capd: no sidecar, no key. The arguments are the server's command. Each line of
// stdin is one attempt of the call, with that text as its argument; each line of stdout says how it ended. After an attempt that failed
// the next one has a new connection.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createInterface } from "node:readline";

const [command, ...args] = process.argv.slice(2);
let client;

async function attempt(key) {
  if (!client) {
    const fresh = new Client({ name: "plain", version: "0" }, {});
    await fresh.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" }));
    client = fresh;
  }
  return client.callTool({ name: "append", arguments: { key } });
}

for await (const key of createInterface({ input: process.stdin })) {
  let said;
  try {
    const result = await attempt(key);
    said = { ok: !result.isError };
  } catch (error) {
    said = { ok: false, error: String(error) };
    const broken = client;
    client = undefined;
    await broken?.close().catch(() => {});
  }
  console.log(JSON.stringify(said));
}
await client?.close();
