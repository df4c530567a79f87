"""AutoGen: agents and teams over Chat Completions, and its agent over Responses."""

import openai
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import UserMessage
from autogen_ext.agents.openai import OpenAIAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool
from pydantic import BaseModel

from berth import auto, base_url, call, job, main, reciter, scripted, sh


def model(name=scripted):
    info = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"}
    return OpenAIChatCompletionClient(model=name, base_url=base_url, model_info=info)


async def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


@job("tool over several turns")
async def tools():
    agent = AssistantAgent("harbour", model(), tools=[tide], max_tool_iterations=3)
    result = await agent.run(task=call("tide", port="Brest") + call("tide", port="Kiel"))
    assert result.messages[-1].content == "1. tide: high at noon in Brest\n2. tide: high at noon in Kiel", result


@job("stream")
async def stream():
    agent = AssistantAgent("harbour", model(), tools=[tide], model_client_stream=True, reflect_on_tool_use=True)
    text = ""
    async for m in agent.run_stream(task=call("tide", port="Oslo")):
        if type(m).__name__ == "ModelClientStreamingChunkEvent":
            text += m.content
    assert text == "1. tide: high at noon in Oslo", text


@job("structured output")
async def structured():
    class Port(BaseModel):
        name: str

    result = await model(reciter).create([UserMessage(content='Say only this: {"name":"Oslo"}', source="user")], json_output=Port)
    assert Port.model_validate_json(result.content) == Port(name="Oslo")
    assert result.usage.prompt_tokens == 3 and result.finish_reason == "stop", result


@job("team of two agents")
async def team():
    one, two = AssistantAgent("one", model(), tools=[tide], max_tool_iterations=2), AssistantAgent("two", model())
    result = await RoundRobinGroupChat([one, two], termination_condition=MaxMessageTermination(3)).run(task=call("tide", port="Brest"))
    assert [m.source for m in result.messages if isinstance(m, TextMessage)][-1] == "two", result


class Container(CodeExecutor):
    """A CodeExecutor whose code runs in a container of Berth's."""

    component_type = "code_executor"

    async def start(self):
        self.client = openai.AsyncOpenAI()
        self.container = await self.client.containers.create(name="autogen")

    async def stop(self):
        await self.client.containers.delete(self.container.id)

    async def restart(self):
        await self.stop()
        await self.start()

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        for n, b in enumerate(code_blocks):
            await self.client.containers.files.create(self.container.id, file=(f"{n}.py", b.code.encode()))
        tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": self.container.id}}
        run = " && ".join(f"python3 {n}.py" for n in range(len(code_blocks)))
        r = await self.client.responses.create(model=scripted, input=sh(run), tools=[tool])
        (o,) = [o for i in r.output if i.type == "shell_call_output" for o in i.output]
        return CodeResult(exit_code=o.outcome.exit_code, output=o.stdout + o.stderr)


@job("code execution tool in a container, files in and out")
async def code():
    executor = Container()
    await executor.start()
    agent = AssistantAgent("coder", model(), tools=[PythonCodeExecutionTool(executor)], max_tool_iterations=3)
    result = await agent.run(task=call("CodeExecutor", code="open('n.txt', 'w').write('41')") + call("CodeExecutor", code="print(int(open('n.txt').read()) + 1)"))
    assert "42" in result.messages[-1].content, result
    (made,) = [f async for f in executor.client.containers.files.list(executor.container.id) if f.path == "/mnt/data/n.txt"]
    assert (await executor.client.containers.files.content.retrieve(made.id, container_id=executor.container.id)).read() == b"41"
    await executor.stop()


@job("OpenAIAgent with a shell in a container, several turns")
async def hosted():
    agent = OpenAIAgent(name="hosted", description="Works in a container.", client=openai.AsyncOpenAI(), model=scripted, instructions="Work.", tools=[auto])
    for commands, want in (("echo 41 > n", "1. exit 0"), ("echo $(($(cat n) + 1))", "1. exit 0: 42")):
        response = await agent.on_messages([TextMessage(content=sh(commands), source="user")], CancellationToken())
        assert response.chat_message.content == want, response


main()
