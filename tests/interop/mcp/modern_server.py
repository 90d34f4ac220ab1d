"""A server of the PyPI package mcp 2.x, which speaks the modern era: what the bridge imports. With the argument `http` it listens on
a port that the system hands out, which uvicorn says on stderr."""

import sys

from mcp.server import MCPServer

server = MCPServer("modern")


@server.tool()
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers."""
    return a * b


@server.tool()
def fails() -> str:
    """Always fails."""
    raise ValueError("it always fails")


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        server.run("streamable-http", port=0)
    else:
        server.run("stdio")
