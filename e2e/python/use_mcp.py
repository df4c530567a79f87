"""The official Python SDK of the Model Context Protocol, with Berth's MCP server."""

import base64
import os

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from berth import base_url, job, main

server = base_url.removesuffix("/v1")


def connect(query="", **options):
    return Client(server + "/mcp" + query, **options)


async def tool(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    return result


@job("a command, with its output while it runs")
async def command():
    seen = []

    async def progress(done, total, message):
        seen.append(message)

    async with connect() as client:
        result = await client.call_tool("run", {"command": "echo ahoy; exit 3"}, progress_callback=progress)
        assert result.structured_content["stdout"] == "ahoy\n" and result.structured_content["exit_code"] == 3, result
        assert "".join(seen) == "ahoy\n", seen


@job("files and resources, with sessions and without")
async def files():
    for mode in ("legacy", "2026-07-28"):
        async with connect("?container=py-" + mode, mode=mode) as client:
            await tool(client, "write", path="notes/a.txt", content="one\n")
            await tool(client, "edit", path="notes/a.txt", old_text="one", new_text="two")
            assert "two" in (await tool(client, "search", pattern="tw+o")).content[0].text
            (found,) = [r for r in (await client.list_resources()).resources if r.name == "a.txt"]
            assert (await client.read_resource(found.uri)).contents[0].text == "two\n"
            missing = await client.call_tool("read", {"path": "missing"})
            assert missing.is_error, missing


@job("a command that continues in the background")
async def background():
    async with connect("?container=py-background") as client:
        started = await tool(client, "run", command="until [ -e go ]; do sleep 0.1; done; echo done", background=True)
    async with connect("?container=py-background") as client:  # another session
        await tool(client, "write", path="go", content="")
        ended = await tool(client, "wait", command_id=started.structured_content["command_id"])
        assert ended.structured_content["stdout"] == "done\n", ended


@job("a chart of Python is an image")
async def chart():
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    async with connect() as client:
        result = await tool(client, "code", code=f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{png}'))")
        (image,) = [c for c in result.content if c.type == "image"]
        assert image.mime_type == "image/png" and base64.b64decode(image.data) == base64.b64decode(png), image


@job("the program berth mcp")
async def program():
    parameters = StdioServerParameters(command=os.environ["BERTH_BIN"], args=["mcp"], env={**os.environ, "BERTH_URL": server})
    async with Client(parameters) as client:
        assert (await tool(client, "run", command="echo ahoy")).content[0].text == "ahoy\n"


main()
