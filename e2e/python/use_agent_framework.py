"""Microsoft Agent Framework: agents over Responses and over Chat Completions."""

import openai
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from pydantic import BaseModel

from berth import block, call, cells, job, main, reciter, scripted, sh

clients = (OpenAIChatClient, OpenAIChatCompletionClient)  # Responses and Chat Completions


@tool(approval_mode="never_require")
def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


@tool(approval_mode="always_require")
def sail(port: str) -> str:
    """Leave for a port."""
    return f"arrived in {port}"


class Port(BaseModel):
    name: str


@job("tool over several turns, streamed or not")
async def tools():
    for client in clients:
        agent = Agent(client(model=scripted), tools=[tide])
        task = call("tide", port="Brest") + call("tide", port="Kiel")
        assert (await agent.run(task)).text.endswith("2. tide: high at noon in Kiel")
        text = "".join([u.text async for u in agent.run(task, stream=True)])
        assert text.endswith("2. tide: high at noon in Kiel"), text


@job("session over several turns")
async def session():
    for client in clients:
        agent = Agent(client(model=scripted), tools=[tide])
        session = agent.create_session()
        await agent.run(call("tide", port="Brest"), session=session)
        assert (await agent.run("And now?", session=session)).text == "And now?"


@job("tool that the user approves")
async def approval():
    agent = Agent(OpenAIChatClient(model=scripted), tools=[sail])
    session = agent.create_session()
    asked = await agent.run(call("sail", port="Oslo"), session=session)
    (request,) = asked.user_input_requests
    done = await agent.run(request.to_function_approval_response(True), session=session)
    assert done.text.endswith("sail: arrived in Oslo"), done.text


@job("structured output")
async def structured():
    for client in clients:
        agent = Agent(client(model=reciter))
        said = await agent.run('Say only this: {"name":"Kiel"}', options={"response_format": Port})
        assert said.value == Port(name="Kiel"), said.value


@job("shell in a container as a hosted tool, several turns, files in and out")
async def shell():
    client = openai.AsyncOpenAI()
    c = await client.containers.create(name="agent-framework")
    await client.containers.files.create(c.id, file=("n.txt", b"41"))
    hosted = OpenAIChatClient.get_shell_tool(environment={"type": "container_reference", "container_id": c.id})
    agent = Agent(OpenAIChatClient(model=scripted), tools=[hosted])
    session = agent.create_session()
    await agent.run(sh("echo $(($(cat n.txt) + 1)) > m.txt"), session=session)
    text = "".join([u.text async for u in agent.run(sh("cat m.txt"), session=session, stream=True)])
    assert text.endswith("exit 0: 42"), text
    (made,) = [f async for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert (await client.containers.files.content.retrieve(made.id, container_id=c.id)).read() == b"42\n"
    await client.containers.delete(c.id)


@job("code interpreter as a hosted tool")
async def code():
    agent = Agent(OpenAIChatClient(model=scripted), tools=[OpenAIChatClient.get_code_interpreter_tool()])
    said = await agent.run(cells("n = 41", "print(n + 1)"))
    assert "42" in said.text, said.text
    kinds = [c.type for m in said.messages for c in m.contents]
    assert kinds.count("code_interpreter_tool_call") == 2, kinds


main()
