"""Google ADK: agents whose model is LiteLLM's, over Chat Completions and over Responses."""

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai import types
from pydantic import BaseModel
import openai

from berth import api_key, base_url, block, call, job, main, reciter, scripted, sh


def model(name):
    return LiteLlm(model=f"openai/{name}", api_base=base_url, api_key=api_key)


def tide(port: str) -> dict:
    """Says when the tide is high."""
    return {"high": f"noon in {port}"}


async def ask(agent, *texts):
    """Return the text of the last event of each of several turns in one session, and the runner's session."""
    runner = InMemoryRunner(agent=agent, app_name="berth")
    session = await runner.session_service.create_session(app_name="berth", user_id="mate")
    said = []
    for text in texts:
        last = ""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(user_id="mate", session_id=session.id, new_message=message):
            if event.error_code:
                raise AssertionError(f"{event.error_code}: {event.error_message}")
            if event.is_final_response() and event.content:
                last = "".join(p.text or "" for p in event.content.parts)
        said.append(last)
    session = await runner.session_service.get_session(app_name="berth", user_id="mate", session_id=session.id)
    return said, session


@job("tool over several turns, and a question after it")
async def tools():
    agent = LlmAgent(name="harbour", model=model(scripted), instruction="Recite.", tools=[tide])
    (first, second), _ = await ask(agent, call("tide", port="Brest") + call("tide", port="Kiel"), "And now?")
    assert "2. tide: " in first and "noon in Kiel" in first, first
    assert second == "And now?", second


@job("structured output")
async def structured():
    class Port(BaseModel):
        name: str

    agent = LlmAgent(name="harbour", model=model(reciter), output_schema=Port, output_key="port")
    _, session = await ask(agent, 'Say only this: {"name":"Kiel"}')
    assert session.state["port"] == {"name": "Kiel"}, session.state


@job("two agents in sequence, the second with the state of the first")
async def sequence():
    def keep(port: str, tool_context: ToolContext) -> dict:
        """Keeps a port."""
        tool_context.state["port"] = port
        return {"kept": port}

    def kept(tool_context: ToolContext) -> dict:
        """Says which port is kept."""
        return {"port": tool_context.state["port"]}

    first = LlmAgent(name="first", model=model(reciter), tools=[keep])
    second = LlmAgent(name="second", model=model(scripted), tools=[kept], include_contents="none")
    (said,), session = await ask(SequentialAgent(name="both", sub_agents=[first, second]), block("keep", port="Oslo") + call("kept"))
    assert session.state["port"] == "Oslo", session.state


@job("tool that runs commands in a container, files in and out")
async def container():
    client = openai.AsyncOpenAI()
    c = await client.containers.create(name="adk")
    await client.containers.files.create(c.id, file=("n.txt", b"41"))
    environment = {"type": "container_reference", "container_id": c.id}

    async def run(command: str) -> dict:
        """Runs a command."""
        r = await client.responses.create(model=scripted, input=sh(command), tools=[{"type": "shell", "environment": environment}])
        return {"said": r.output_text}

    agent = LlmAgent(name="harbour", model=model(scripted), tools=[run])
    (said,), _ = await ask(agent, call("run", command="echo $(($(cat n.txt) + 1)) > m.txt") + call("run", command="cat m.txt"))
    assert "exit 0: 42" in said, said
    (made,) = [f async for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert (await client.containers.files.content.retrieve(made.id, container_id=c.id)).read() == b"42\n"
    await client.containers.delete(c.id)


main()
