"""CrewAI: a crew over Chat Completions, and its model over Responses."""

import openai
from crewai import LLM, Agent, Crew, Task
from crewai.tools import BaseTool
from pydantic import BaseModel

from berth import api_key, auto, base_url, call, job, main, outputs, reciter, scripted, sh


def model(name=scripted, **extra):
    return LLM(model=name, provider="openai", base_url=base_url, api_key=api_key, **extra)


class Tide(BaseTool):
    name: str = "tide"
    description: str = "Say when the tide is high."

    def _run(self, port: str) -> str:
        return f"high at noon in {port}"


class Container(BaseTool):
    """A tool that runs commands in a container of Berth's."""

    name: str = "run"
    description: str = "Run a command in a container."
    container: str

    def _run(self, command: str) -> str:
        tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": self.container}}
        (o,) = outputs(openai.OpenAI().responses.create(model=scripted, input=sh(command), tools=[tool]))
        return o.stdout + o.stderr


def crew(llm, task, *tools):
    agent = Agent(role="Harbour master", goal="Answer.", backstory="Old.", llm=llm, tools=list(tools))
    return Crew(agents=[agent], tasks=[Task(description="\n" + task, expected_output="What the tools return.", agent=agent)])


@job("model called directly, streamed or not")
def direct():
    for extra in ({}, {"stream": True}, {"api": "responses"}, {"api": "responses", "stream": True}):
        assert model(**extra).call("calm sea") == "calm sea", extra


@job("crew with a tool over several turns")
def tool():
    for api in ("completions", "responses"):
        out = crew(model(api=api), call("tide", port="Brest") + call("tide", port="Kiel"), Tide()).kickoff()
        assert "high at noon in Kiel" in out.raw, (api, out.raw)


@job("two tasks, the second with the first's answer")
def tasks():
    agent = Agent(role="Harbour master", goal="Answer.", backstory="Old.", llm=model(), tools=[Tide()])
    first = Task(description="\n" + call("tide", port="Brest"), expected_output="The tide.", agent=agent)
    second = Task(description="Repeat it.", expected_output="The same.", agent=agent, context=[first])
    assert "high at noon in Brest" in Crew(agents=[agent], tasks=[first, second]).kickoff().raw


@job("crew whose tool runs commands in a container, files in and out")
def container():
    client = openai.OpenAI()
    c = client.containers.create(name="crewai")
    client.containers.files.create(c.id, file=("n.txt", b"41"))
    out = crew(model(), call("run", command="echo $(($(cat n.txt) + 1)) > m.txt") + call("run", command="cat m.txt"), Container(container=c.id)).kickoff()
    assert "42" in out.raw, out.raw
    (made,) = [f for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert client.containers.files.content.retrieve(made.id, container_id=c.id).read() == b"42\n"
    client.containers.delete(c.id)


@job("shell in a container as a built-in tool")
def shell():
    llm = model(api="responses", additional_params={"tools": [auto]})
    assert llm.call(sh("echo $((41 + 1))")) == "1. exit 0: 42"


@job("structured output")
def structured():
    class Port(BaseModel):
        name: str

    out = model(reciter).call('Say only this: {"name":"Oslo"}', response_model=Port)
    assert out in (Port(name="Oslo"), '{"name":"Oslo"}'), out


main()
