"""An MCP server of PyPI's mcp package: serve_tides.py PORT serves it over SSE, without a port over stdio."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("tides")


@server.tool()
def tide(port: str) -> str:
    """Says when the tide is high."""
    return f"high at noon in {port}"


if len(sys.argv) > 1:
    server.run(transport="sse", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run(transport="stdio")
