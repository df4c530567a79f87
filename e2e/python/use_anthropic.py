"""Anthropic's own client, with a Messages API that Berth serves."""

import anthropic
import openai
from anthropic import beta_tool

from berth import base_url, call, job, main, mcp_url, scripted, sh, site_url

server = base_url.removesuffix("/v1")
client = anthropic.Anthropic(base_url=server, api_key="none", max_retries=0)
code = [{"type": "code_execution_20250825", "name": "code_execution"}]
search = call("web_search", type="search", queries=["tides of Brest"])


def create(text, **extra):
    return client.beta.messages.create(
        model=scripted, max_tokens=1000, messages=[{"role": "user", "content": text}], **extra
    )


def stdouts(message):
    return [b.content.stdout for b in message.content if b.type == "bash_code_execution_tool_result"]


@job("text, whole and streamed")
def text():
    message = client.messages.create(model=scripted, max_tokens=100, messages=[{"role": "user", "content": "ahoy"}])
    assert "ahoy" in message.content[0].text and message.usage.input_tokens > 0, message
    assert message._request_id.startswith("req_")
    with client.messages.stream(
        model=scripted, max_tokens=100, messages=[{"role": "user", "content": "ahoy again"}]
    ) as stream:
        seen = "".join(stream.text_stream)
        assert "ahoy again" in seen and stream.get_final_text() == seen, seen


@job("tools by the tool runner")
def runner():
    @beta_tool
    def add(a: int, b: int) -> str:
        """Add numbers."""
        return str(a + b)

    last = client.beta.messages.tool_runner(
        model=scripted,
        max_tokens=1000,
        tools=[add],
        messages=[{"role": "user", "content": call("add", a=40, b=1) + call("add", a=41, b=1)}],
    ).until_done()
    assert "41" in last.content[-1].text and "42" in last.content[-1].text, last


@job("a tool result with an image")
def image():
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
    task = {"role": "user", "content": call("look")}
    first = client.messages.create(model=scripted, max_tokens=100, tools=tools, messages=[task])
    (use,) = [b for b in first.content if b.type == "tool_use"]
    content = [
        {"type": "text", "text": "a pixel"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
    ]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": content}]}
    history = [task, {"role": "assistant", "content": first.content}, result]
    last = client.messages.create(model=scripted, max_tokens=100, tools=tools, messages=history)
    assert "a pixel" in last.content[0].text, last


@job("a chain from messages to responses and back, in one container")
def chain():
    first = create(sh("echo 41 > n.txt"), tools=code)
    other = openai.OpenAI(base_url=base_url, api_key="none")
    shell = {"type": "shell", "environment": {"type": "container_reference", "container_id": first.container.id}}
    second = other.responses.create(
        model=scripted, input=sh("echo $(($(cat n.txt) + 1)) > m.txt; cat m.txt"), tools=[shell]
    )
    (output,) = [o for i in second.output if i.type == "shell_call_output" for o in i.output]
    assert output.stdout == "42\n", output
    third = create(sh("cat n.txt m.txt"), tools=code, container=first.container.id)
    assert stdouts(third) == ["41\n42\n"] and third.container.id == first.container.id, third


@job("code execution, streamed")
def streamed():
    with client.beta.messages.stream(
        model=scripted, max_tokens=1000, tools=code, messages=[{"role": "user", "content": sh("echo one", "echo two")}]
    ) as stream:
        assert stdouts(stream.get_final_message()) == ["one\n", "two\n"]


@job("web search with citations")
def web():
    found = create(search, tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}])
    (result,) = [b for b in found.content if b.type == "web_search_tool_result"]
    assert result.content[0].url == site_url + "/tides", result
    assert found.content[-1].citations[0].url == site_url + "/tides", found


@job("a server of the Model Context Protocol")
def mcp():
    message = create(
        call("tides__tide", port="Brest"),
        mcp_servers=[{"type": "url", "name": "tides", "url": mcp_url}],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "tides"}],
    )
    assert "high at noon in Brest" in str([b for b in message.content if b.type == "mcp_tool_result"]), message


@job("tokens counted, models listed, errors")
def rest():
    counted = client.messages.count_tokens(model=scripted, messages=[{"role": "user", "content": "one two three"}])
    assert counted.input_tokens >= 3, counted
    assert scripted in [m.id for m in client.models.list()]
    try:
        client.messages.create(model=scripted, max_tokens=0, messages=[{"role": "user", "content": "x"}])
    except anthropic.BadRequestError as e:
        assert "max_tokens" in str(e) and e.type == "invalid_request_error", e
    else:
        raise AssertionError("a message of no tokens")


@job("many at once, async")
async def many():
    import asyncio

    async with anthropic.AsyncAnthropic(base_url=server, api_key="none") as c:
        ask = lambda n: c.messages.create(  # noqa: E731
            model=scripted, max_tokens=100, messages=[{"role": "user", "content": f"ahoy {n}."}]
        )
        for n, message in enumerate(await asyncio.gather(*map(ask, range(20)))):
            assert f"ahoy {n}." in message.content[0].text, message


main()
