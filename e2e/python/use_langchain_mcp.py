"""LangChain's adapters of the Model Context Protocol, with Berth's MCP server."""

from langchain_mcp_adapters.client import MultiServerMCPClient

from berth import base_url, job, main


@job("tools of a named container")
async def tools():
    url = base_url.removesuffix("/v1") + "/mcp?container=langchain"
    client = MultiServerMCPClient({"berth": {"transport": "streamable_http", "url": url}})
    found = {tool.name: tool for tool in await client.get_tools()}
    await found["write"].ainvoke({"path": "a.txt", "content": "ahoy\n"})
    assert "ahoy" in str(await found["run"].ainvoke({"command": "cat a.txt"}))


main()
