"""A foreign MCP server, made with the official package; its tools tell where it runs."""
import os
import pathlib
import socket
import sys

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent

server = MCPServer("foreign")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
def look(path: str) -> str:
    """Reads a file."""
    try:
        return pathlib.Path(path).read_text()
    except OSError as e:
        return repr(e)


@server.tool()
def connect(host: str, port: int) -> str:
    """Connects to an address."""
    try:
        socket.create_connection((host, port), 2)
        return "connected"
    except OSError as e:
        return repr(e)


@server.tool()
def environment() -> str:
    """Its variables."""
    return repr(dict(os.environ))


@server.tool()
def tell(words: str) -> CallToolResult:
    """Says more in the structured part than in its text."""
    return CallToolResult(content=[TextContent(type="text", text=words)], structured_content={"names": ["a.txt", "b"], "complete": True})


if __name__ == "__main__":
    print("noise on stderr", file=sys.stderr)
    server.run()
