// The client of the npm SDK 1.x against `capd-mcp serve`: the arguments are the URL or the command.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

await (await import("./exercise.mjs")).exercise(Client, StdioClientTransport, StreamableHTTPClientTransport, {});
