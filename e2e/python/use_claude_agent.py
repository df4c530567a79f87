"""The Claude Agent SDK, with the Claude Code that it brings, through Berth's Messages API."""

import os
import pathlib
import tempfile

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, create_sdk_mcp_server, query, tool

from berth import base_url, block, job, main, reciter

server = base_url.removesuffix("/v1")
home = tempfile.mkdtemp(dir=os.environ["HOME"])
environment = {
    "CLAUDE_CONFIG_DIR": home,
    "TMPDIR": home,
    "ANTHROPIC_BASE_URL": server,
    "ANTHROPIC_AUTH_TOKEN": "none",
    "ANTHROPIC_SMALL_FAST_MODEL": reciter,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


def options(**extra):
    return ClaudeAgentOptions(model=reciter, cwd=home, env=environment, **extra)


async def ask(prompt, **extra):
    """Run an agent and return its result."""
    async for message in query(prompt=prompt, options=options(**extra)):
        last = message
    assert isinstance(last, ResultMessage) and not last.is_error, last
    return last


def found(name):
    """Return a message that has the model search a tool: those of MCP servers are deferred."""
    return block("ToolSearch", query=f"select:{name}")


@job("a file edited with its own tools")
async def edit():
    log = pathlib.Path(home, "log.md")
    log.write_text("calm\n")
    await ask(
        block("Read", file_path=str(log)) + block("Edit", file_path=str(log), old_string="calm", new_string="breeze"),
        permission_mode="acceptEdits",
    )
    assert log.read_text() == "breeze\n"


@job("a tool of the program")
async def own():
    @tool("add", "Adds.", {"a": int, "b": int})
    async def add(arguments):
        return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}

    sums = create_sdk_mcp_server("sums", tools=[add])
    result = await ask(
        found("mcp__sums__add") + block("mcp__sums__add", a=40, b=2),
        mcp_servers={"sums": sums},
        allowed_tools=["mcp__sums__add"],
    )
    assert "42" in result.result, result


@job("Berth's MCP server")
async def berth():
    result = await ask(
        found("mcp__berth__run") + block("mcp__berth__run", command="echo $((6 * 7))"),
        mcp_servers={"berth": {"type": "http", "url": server + "/mcp"}},
        allowed_tools=["mcp__berth"],
    )
    assert "42" in result.result, result


@job("several turns in one session")
async def session():
    async with ClaudeSDKClient(options()) as client:
        for text in ("aye", "aye aye"):
            await client.query("Say only this: " + text)
            last = [m async for m in client.receive_response()][-1]
            assert last.result == text, last


main()
