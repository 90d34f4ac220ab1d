// The client of the npm SDK 2.x against `capd-mcp serve`: the arguments are the URL or the command.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

await (await import("./exercise.mjs")).exercise(Client, StdioClientTransport, StreamableHTTPClientTransport, {});
