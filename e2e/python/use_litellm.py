"""LiteLLM as a client of Berth's Messages API."""

import json

import litellm

from berth import base_url, call, job, main, scripted, sh

server = base_url.removesuffix("/v1")
common = {"model": "anthropic/" + scripted, "api_base": server, "api_key": "none", "max_tokens": 1000}


def user(text):
    return [{"role": "user", "content": text}]


@job("a completion, whole and streamed")
def completion():
    assert "ahoy" in litellm.completion(messages=user("ahoy"), **common).choices[0].message.content
    pieces = litellm.completion(messages=user("ahoy"), stream=True, **common)
    assert "ahoy" in "".join(p.choices[0].delta.content or "" for p in pieces)


@job("a tool over several turns")
def tools():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": schema}}]
    history = user(call("add", a=40, b=1) + call("add", a=41, b=1))
    while True:
        message = litellm.completion(messages=history, tools=tools, **common).choices[0].message
        history.append(message.model_dump())
        if not message.tool_calls:
            break
        for asked in message.tool_calls:
            arguments = json.loads(asked.function.arguments)
            result = str(arguments["a"] + arguments["b"])
            history.append({"role": "tool", "tool_call_id": asked.id, "content": result})
    assert len(history) == 6 and "42" in message.content, history


@job("code execution in a container")
def code():
    tool = {"type": "code_execution_20250825", "name": "code_execution"}
    answer = litellm.completion(messages=user(sh("echo $((6 * 7))")), tools=[tool], **common)
    assert "42" in str(answer.choices[0].message), answer


@job("its route of Anthropic's messages")
async def messages():
    answer = await litellm.anthropic.messages.acreate(messages=user("ahoy"), **common)
    assert "ahoy" in answer["content"][0]["text"], answer


main()
