"""The client of the PyPI package mcp 2.x against `capd-mcp serve`: arguments are mode, then the URL or the command."""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    mode, *words = sys.argv[1:]
    if words[0].startswith("http"):
        target = streamable_http_client(words[0])
    else:
        target = stdio_client(StdioServerParameters(command=words[0], args=words[1:]))
    async with Client(target, mode=mode) as client:
        tools, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        names = sorted(tool.name for tool in tools)
        result = await client.call_tool("com_example_everything_get-sum", {"a": 2, "b": 3})
        wrong = await client.call_tool("com_example_everything_get-sum", {"a": "x"})
        print(json.dumps({
            "names": names,
            "text": result.content[0].text,
            "is_error": bool(result.is_error),
            "wrong": wrong.content[0].text,
            "wrong_is_error": bool(wrong.is_error),
        }))


asyncio.run(main())
