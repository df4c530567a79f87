"""OpenAI's Agents SDK, with agents whose model is on Berth."""

import contextlib
import os
import subprocess
import tempfile

import openai
from agents import (
    Agent, ApplyPatchTool, InputGuardrailTripwireTriggered, GuardrailFunctionOutput, OpenAIConversationsSession, OpenAIChatCompletionsModel,
    Runner, ShellCallOutcome, ShellCommandOutput, ShellResult, ShellTool, SQLiteSession, apply_diff, function_tool, input_guardrail, set_trace_processors, trace,
)
from agents.tracing import get_trace_provider
from agents.tracing.processors import BackendSpanExporter, BatchTraceProcessor
from pydantic import BaseModel

from berth import api_key, base_url, block, call, job, main, reciter, scripted, sh

client = openai.AsyncOpenAI()

# The traces go to Berth, which must accept them.
exported = []


class Exporter(BackendSpanExporter):
    def export(self, items):
        exported.extend(items)
        super().export(items)


exporter = Exporter(api_key=api_key, endpoint=base_url + "/traces/ingest", max_retries=0)
set_trace_processors([BatchTraceProcessor(exporter, schedule_delay=3600)])


@function_tool
def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


@job("function tool, streamed")
async def tool():
    result = Runner.run_streamed(Agent(name="Harbour", model=reciter, tools=[tide]), block("tide", port="Brest"))
    names, text = [], ""
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            names.append(event.name)
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert names == ["tool_called", "tool_output", "message_output_created"], names
    assert text == result.final_output == "It came to this: high at noon in Brest", text


@job("several turns with previous_response_id")
async def turns():
    agent = Agent(name="Harbour", model=reciter, tools=[tide])
    first = await Runner.run(agent, block("tide", port="Kiel"))
    second = await Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
    assert second.final_output == "You said: And now?", second.final_output


@job("session in SQLite")
async def session():
    agent = Agent(name="Harbour", model=reciter, tools=[tide])
    memory = SQLiteSession("harbour")
    await Runner.run(agent, block("tide", port="Kiel"), session=memory)
    result = await Runner.run(agent, "And now?", session=memory)
    assert result.final_output == "You said: And now?"
    assert len(await memory.get_items()) == 6, await memory.get_items()


@job("session in a conversation")
async def conversation():
    agent = Agent(name="Hosted", model=scripted, tools=[ShellTool(environment={"type": "container_auto"})])
    memory = OpenAIConversationsSession(openai_client=client)
    await Runner.run(agent, sh("echo 41 > n"), session=memory)
    result = await Runner.run(agent, "calm", session=memory)
    assert result.final_output == "calm", result.final_output
    types = [i.get("type", "message") for i in await memory.get_items()]
    assert types == ["message", "shell_call", "shell_call_output", "message", "message", "message"], types
    await memory.clear_session()


@job("handoff")
async def handoff():
    harbour = Agent(name="Harbour", model=reciter, tools=[tide])
    triage = Agent(name="Triage", model=reciter, handoffs=[harbour])
    result = await Runner.run(triage, block("transfer_to_harbour") + block("tide", port="Oslo"))
    assert result.last_agent.name == "Harbour" and result.final_output == "It came to this: high at noon in Oslo"


@job("guardrail")
async def guardrail():
    @input_guardrail
    async def storms(context, agent, input):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="storm" in str(input))

    agent = Agent(name="Wary", model=reciter, input_guardrails=[storms])
    assert (await Runner.run(agent, "calm")).final_output == "You said: calm"
    with contextlib.suppress(InputGuardrailTripwireTriggered):
        await Runner.run(agent, "a storm")
        raise AssertionError("a storm passed")


@job("structured output")
async def structured():
    class Port(BaseModel):
        name: str

    result = await Runner.run(Agent(name="Pilot", model=reciter, output_type=Port), 'Say only this: {"name":"Oslo"}')
    assert result.final_output == Port(name="Oslo")


@job("ShellTool in a container")
async def hosted():
    agent = Agent(name="Hosted", model=scripted, tools=[ShellTool(environment={"type": "container_auto"})])
    result = Runner.run_streamed(agent, sh("echo 41 > n", "echo $(($(cat n) + 1))"))
    types = []
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            types.append(event.data.type)
    assert result.final_output == "1. exit 0\n2. exit 0: 42", result.final_output
    assert types.count("response.output_item.done") == 5 and types[-1] == "response.completed", types
    again = await Runner.run(agent, sh("cat n"), previous_response_id=result.last_response_id)
    assert again.final_output == "1. exit 0: 41", again.final_output


@job("ShellTool in a referenced container, files in and out")
async def files():
    c = await client.containers.create(name="agents")
    await client.containers.files.create(c.id, file=("n.txt", b"41"))
    agent = Agent(name="Hosted", model=scripted, tools=[ShellTool(environment={"type": "container_reference", "container_id": c.id})])
    await Runner.run(agent, sh("echo $(($(cat n.txt) + 1)) > m.txt"))
    (made,) = [f async for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert (await client.containers.files.content.retrieve(made.id, container_id=c.id)).read() == b"42\n"
    await client.containers.delete(c.id)


@job("ShellTool on the client's machine")
async def local():
    def execute(request):
        done = [subprocess.run(["sh", "-c", c], capture_output=True, text=True) for c in request.data.action.commands]
        return ShellResult(output=[ShellCommandOutput(stdout=d.stdout, stderr=d.stderr, outcome=ShellCallOutcome(type="exit", exit_code=d.returncode)) for d in done])

    result = await Runner.run(Agent(name="Local", model=scripted, tools=[ShellTool(executor=execute)]), sh("echo ahoy; exit 3"))
    assert result.final_output == "1. exit 3: ahoy", result.final_output


@job("ApplyPatchTool")
async def patch():
    with tempfile.TemporaryDirectory() as dir:

        class Editor:
            def create_file(self, op):
                with open(os.path.join(dir, op.path), "w") as f:
                    f.write(apply_diff("", op.diff, mode="create"))

            def update_file(self, op):
                with open(os.path.join(dir, op.path)) as f:
                    text = apply_diff(f.read(), op.diff)
                with open(os.path.join(dir, op.path), "w") as f:
                    f.write(text)

            def delete_file(self, op):
                os.remove(os.path.join(dir, op.path))

        task = block("apply_patch", type="create_file", path="log.md", diff="+# Log\n+\n+calm")
        task += block("apply_patch", type="update_file", path="log.md", diff="@@\n # Log\n \n-calm\n+storm")
        await Runner.run(Agent(name="Editor", model=reciter, tools=[ApplyPatchTool(editor=Editor())]), task)
        with open(os.path.join(dir, "log.md")) as f:
            assert f.read().strip() == "# Log\n\nstorm"


@job("Chat Completions")
async def chat():
    agent = Agent(name="Harbour", model=OpenAIChatCompletionsModel(scripted, client), tools=[tide])
    result = Runner.run_streamed(agent, call("tide", port="Brest"))
    async for _ in result.stream_events():
        pass
    assert result.final_output == "1. tide: high at noon in Brest", result.final_output


@job("traces")
async def traces():
    with trace("berth"):
        await Runner.run(Agent(name="Traced", model=reciter), "calm")
    get_trace_provider().force_flush()
    assert len(exported) > 3, exported


main()
