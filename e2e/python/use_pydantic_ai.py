"""Pydantic AI: agents over Responses and over Chat Completions."""

import openai
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from berth import block, call, job, main, reciter, scripted, sh

models = (OpenAIResponsesModel, OpenAIChatModel)


def tide(port: str) -> str:
    """Say when the tide is high."""
    if port == "Atlantis":
        raise ModelRetry("There is no such port.")
    return f"high at noon in {port}"


class Port(BaseModel):
    name: str


@job("tool over several turns, with a retry")
async def tools():
    for model in models:
        result = await Agent(model(scripted), tools=[tide]).run(call("tide", port="Atlantis") + call("tide", port="Kiel"))
        assert result.output.endswith("2. tide: high at noon in Kiel"), result.output
        assert result.usage.total_tokens > 0 and result.usage.requests == 3, result.usage


@job("message history")
async def history():
    for model in models:
        agent = Agent(model(scripted), tools=[tide])
        first = await agent.run(call("tide", port="Brest"))
        second = await agent.run("And now?", message_history=first.all_messages())
        assert second.output == "And now?" and len(second.all_messages()) == 6


@job("stream")
async def stream():
    for model in models:
        agent = Agent(model(scripted), tools=[tide])
        async with agent.run_stream(call("tide", port="Oslo")) as result:
            texts = [t async for t in result.stream_text(delta=True)]
        assert "".join(texts) == "1. tide: high at noon in Oslo", texts


@job("structured output, by tool and natively")
async def structured():
    for model in models:
        by_tool = await Agent(model(reciter), output_type=Port).run(block("final_result", name="Kiel"))
        native = await Agent(model(reciter), output_type=NativeOutput(Port)).run('Say only this: {"name":"Oslo"}')
        assert (by_tool.output, native.output) == (Port(name="Kiel"), Port(name="Oslo"))


@job("shell in a container, several turns, files in and out")
async def shell():
    client = openai.AsyncOpenAI()
    c = await client.containers.create(name="pydantic-ai")
    await client.containers.files.create(c.id, file=("n.txt", b"41"))
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": c.id}}
    agent = Agent(OpenAIResponsesModel(scripted), model_settings={"openai_previous_response_id": "auto", "extra_body": {"tools": [tool]}})
    first = await agent.run(sh("echo $(($(cat n.txt) + 1)) > m.txt"))
    second = await agent.run(sh("cat m.txt"), message_history=first.all_messages())
    assert second.output == "1. exit 0: 42", second.output
    (made,) = [f async for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert (await client.containers.files.content.retrieve(made.id, container_id=c.id)).read() == b"42\n"
    await client.containers.delete(c.id)


main()
