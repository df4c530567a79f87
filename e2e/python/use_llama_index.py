"""LlamaIndex: its models of OpenAI's two APIs, and an agent workflow."""

import openai
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage, LLMMetadata
from llama_index.core.workflow import Context
from llama_index.llms.openai import OpenAI, OpenAIResponses
from pydantic import BaseModel

from berth import api_key, auto, base_url, call, job, main, reciter, scripted, sh


def chat(model=scripted):
    class Model(OpenAI):  # the client has a table of OpenAI's models, in which this one is not
        @property
        def metadata(self):
            return LLMMetadata(model_name=self.model, is_chat_model=True, is_function_calling_model=True)

    return Model(model=model, api_base=base_url, api_key=api_key)


def responses(model=scripted, **extra):
    return OpenAIResponses(model=model, api_base=base_url, api_key=api_key, context_window=100_000, **extra)


def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


@job("chat and stream")
def plain():
    for llm in (chat(), responses()):
        assert llm.chat([ChatMessage(role="user", content="calm sea")]).message.content == "calm sea"
        chunks = list(llm.stream_chat([ChatMessage(role="user", content="calm sea, light wind")]))
        assert chunks[-1].message.content == "calm sea, light wind", chunks


@job("agent with a tool over several turns, streamed")
async def agent():
    for llm in (chat(), responses()):
        a = FunctionAgent(tools=[tide], llm=llm)
        context = Context(a)
        handler = a.run(user_msg=call("tide", port="Brest") + call("tide", port="Kiel"), ctx=context)
        text = ""
        async for e in handler.stream_events():
            if isinstance(e, AgentStream):
                text += e.delta or ""
        want = "1. tide: high at noon in Brest\n2. tide: high at noon in Kiel"
        assert (await handler).response.content == want and text == want, text
        assert (await a.run(user_msg="And now?", ctx=context)).response.content == "And now?"


@job("structured output")
def structured():
    class Port(BaseModel):
        name: str

    llm = responses(reciter).as_structured_llm(Port)
    assert llm.chat([ChatMessage(role="user", content='Say only this: {"name":"Oslo"}')]).raw == Port(name="Oslo")


@job("shell in a container as a built-in tool, several turns, files in and out")
def shell():
    llm = responses(built_in_tools=[auto], track_previous_responses=True)
    assert llm.chat([ChatMessage(role="user", content=sh("echo 41 > n.txt"))]).message.content == "1. exit 0"
    answer = llm.chat([ChatMessage(role="user", content=sh("echo $(($(cat n.txt) + 1)) > m.txt; cat m.txt"))])
    assert answer.message.content == "1. exit 0: 42", answer
    client = openai.OpenAI()
    container = client.responses.retrieve(answer.raw.id).tools[0].environment.container_id
    (made,) = [f for f in client.containers.files.list(container) if f.path == "/mnt/data/m.txt"]
    assert client.containers.files.content.retrieve(made.id, container_id=container).read() == b"42\n"


main()
