"""Semantic Kernel: agents over Chat Completions and over Responses, with plugins of functions."""

import openai
from pydantic import BaseModel
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent, OpenAIResponsesAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.functions import KernelArguments, kernel_function

from berth import api_key, base_url, block, call, job, main, reciter, scripted, sh


def service(model=scripted):
    return OpenAIChatCompletion(ai_model_id=model, async_client=openai.AsyncOpenAI(base_url=base_url, api_key=api_key))


class Harbour:
    @kernel_function(description="Say when the tide is high.")
    def tide(self, port: str) -> str:
        return f"high at noon in {port}"


class Port(BaseModel):
    name: str


@job("a plugin's function over several turns, and a question after it")
async def plugin():
    agent = ChatCompletionAgent(service=service(), name="harbour", plugins=[Harbour()])
    task = call("Harbour-tide", port="Brest") + call("Harbour-tide", port="Kiel")
    first = await agent.get_response(messages=task)
    assert str(first.content).endswith("high at noon in Kiel"), first.content
    second = await agent.get_response(messages="And now?", thread=first.thread)
    assert str(second.content) == "And now?", second.content


@job("stream")
async def stream():
    agent = ChatCompletionAgent(service=service(), name="harbour", plugins=[Harbour()])
    text = "".join([str(m.content) async for m in agent.invoke_stream(messages=call("Harbour-tide", port="Oslo"))])
    assert text.endswith("high at noon in Oslo"), text


@job("structured output")
async def structured():
    settings = OpenAIChatPromptExecutionSettings(response_format=Port)
    agent = ChatCompletionAgent(service=service(reciter), name="harbour", arguments=KernelArguments(settings=settings))
    said = await agent.get_response(messages='Say only this: {"name":"Kiel"}')
    assert Port.model_validate_json(str(said.content)) == Port(name="Kiel"), said.content


@job("OpenAIResponsesAgent with a plugin, several turns")
async def responses():
    client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key)
    agent = OpenAIResponsesAgent(ai_model_id=scripted, client=client, name="harbour", plugins=[Harbour()])
    first = await agent.get_response(messages=call("Harbour-tide", port="Brest"))
    assert str(first.content).endswith("high at noon in Brest"), first.content
    second = await agent.get_response(messages="And now?", thread=first.thread)
    assert str(second.content) == "And now?", second.content


@job("a plugin that runs commands in a container, files in and out")
async def container():
    client = openai.AsyncOpenAI()
    c = await client.containers.create(name="semantic-kernel")
    await client.containers.files.create(c.id, file=("n.txt", b"41"))
    environment = {"type": "container_reference", "container_id": c.id}

    class Box:
        @kernel_function(description="Run a command.")
        async def run(self, command: str) -> str:
            r = await client.responses.create(model=scripted, input=sh(command), tools=[{"type": "shell", "environment": environment}])
            return r.output_text

    kernel = Kernel()
    kernel.add_plugin(Box(), plugin_name="box")
    agent = ChatCompletionAgent(service=service(reciter), kernel=kernel, name="harbour")
    said = await agent.get_response(messages=block("box-run", command="echo $(($(cat n.txt) + 1)) > m.txt") + block("box-run", command="cat m.txt"))
    assert "exit 0: 42" in str(said.content), said.content
    (made,) = [f async for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert (await client.containers.files.content.retrieve(made.id, container_id=c.id)).read() == b"42\n"
    await client.containers.delete(c.id)


main()
