"""Strands Agents: agents over Responses and over Chat Completions."""

import openai
from pydantic import BaseModel
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel

from berth import api_key, auto, base_url, block, call, job, main, reciter, scripted, sh

models = (OpenAIModel, OpenAIResponsesModel)
access = {"api_key": api_key, "base_url": base_url}


class Port(BaseModel):
    """A port."""

    name: str


@tool
def tide(port: str) -> str:
    """Say when the tide is high.

    Args:
        port: Where.
    """
    return f"high at noon in {port}"


def agent(model, name=scripted, tools=(), **options):
    return Agent(model=model(client_args=access, model_id=name, **({"params": {}} | options)), tools=list(tools), callback_handler=None)


@job("tool over several turns, and a question after it")
def tools():
    for model in models:
        a = agent(model, tools=[tide])
        said = str(a(call("tide", port="Brest") + call("tide", port="Kiel")))
        assert said.strip().endswith("2. tide: high at noon in Kiel"), said
        assert str(a("And now?")).strip() == "And now?"


@job("stream")
async def stream():
    for model in models:
        texts = [e["data"] async for e in agent(model, tools=[tide]).stream_async(call("tide", port="Oslo")) if "data" in e]
        assert "".join(texts) == "1. tide: high at noon in Oslo", texts


@job("structured output by a tool")
def structured():
    for model in models:
        said = agent(model, reciter)(block("Port", name="Kiel"), structured_output_model=Port)
        assert said.structured_output == Port(name="Kiel"), said


@job("tool that runs commands in a container, files in and out")
def container():
    client = openai.OpenAI()
    c = client.containers.create(name="strands")
    client.containers.files.create(c.id, file=("n.txt", b"41"))
    environment = {"type": "container_reference", "container_id": c.id}

    @tool
    def run(command: str) -> str:
        """Run a command.

        Args:
            command: The command.
        """
        return client.responses.create(model=scripted, input=sh(command), tools=[{"type": "shell", "environment": environment}]).output_text

    said = str(agent(OpenAIModel, tools=[run])(call("run", command="echo $(($(cat n.txt) + 1)) > m.txt") + call("run", command="cat m.txt")))
    assert "exit 0: 42" in said, said
    (made,) = [f for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert client.containers.files.content.retrieve(made.id, container_id=c.id).read() == b"42\n"
    client.containers.delete(c.id)


@job("shell in a container as a built-in tool")
def shell():
    said = str(agent(OpenAIResponsesModel, params={"tools": [auto]})(sh("echo $((40 + 2))")))
    assert "exit 0: 42" in said, said


main()
