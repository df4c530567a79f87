"""OpenAI's Agents SDK, with agents whose model is on Berth."""

import contextlib
import os
import subprocess
import tempfile

import openai
from agents import (
    Agent, ApplyPatchTool, CodeInterpreterTool, Computer, ComputerTool, CustomTool, FileSearchTool, GuardrailFunctionOutput, HostedMCPTool, ImageGenerationTool,
    InputGuardrailTripwireTriggered, ModelSettings, OpenAIConversationsSession, OpenAIChatCompletionsModel, Runner, ShellCallOutcome, ShellCommandOutput, ShellResult, ShellTool, SQLiteSession,
    WebSearchTool, apply_diff, function_tool, input_guardrail, set_trace_processors, trace,
)
from agents.mcp import MCPServerStreamableHttp
from agents.tracing import get_trace_provider
from agents.tracing.processors import BackendSpanExporter, BatchTraceProcessor
from pydantic import BaseModel

from berth import api_key, base_url, block, call, cells, clicker, drawer, job, main, mcp_url, reciter, scripted, sh, site_url

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


@job("CodeInterpreterTool, streamed, several turns")
async def code():
    agent = Agent(name="Analyst", model=scripted, tools=[CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}})])
    result = Runner.run_streamed(agent, cells("x = 41"))
    seen = [e.data.type async for e in result.stream_events() if e.type == "raw_response_event"]
    assert "response.code_interpreter_call.interpreting" in seen, seen
    again = await Runner.run(agent, cells("x + 1"), previous_response_id=result.last_response_id)
    assert again.final_output == "1. code_interpreter: 42", again.final_output


@job("FileSearchTool with a citation")
async def file_search():
    store = await client.vector_stores.create(name="agents")
    await client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("tides.md", b"High water is at noon."), poll_interval_ms=50)
    agent = Agent(name="Librarian", model=scripted, tools=[FileSearchTool(vector_store_ids=[store.id], max_num_results=3, include_search_results=True)])
    result = await Runner.run(agent, call("file_search", queries=["high water"]))
    message = result.new_items[-1].raw_item.content[0]
    assert message.text.startswith("1. file_search: High water is at noon.") and message.annotations[0].filename == "tides.md", message
    assert result.new_items[0].raw_item.results[0].text == "High water is at noon.", result.new_items[0]
    await client.vector_stores.delete(store.id)


@job("WebSearchTool with a citation")
async def web_search():
    result = await Runner.run(Agent(name="Reader", model=scripted, tools=[WebSearchTool(search_context_size="low")]), call("web_search", type="search", queries=["tides"]))
    (cited,) = result.new_items[-1].raw_item.content[0].annotations
    assert (cited.type, cited.url) == ("url_citation", site_url + "/tides"), cited


@job("HostedMCPTool, with and without approval")
async def mcp():
    tool = {"type": "mcp", "server_label": "tides", "server_url": mcp_url}
    free = Agent(name="Harbour", model=scripted, tools=[HostedMCPTool(tool_config={**tool, "require_approval": "never"})])
    result = await Runner.run(free, call("tides__tide", port="Brest"))
    assert result.final_output == "1. tides__tide: high at noon in Brest", result.final_output
    asked = []

    def approve(request):
        asked.append(request.data.name)
        return {"approve": True}

    wary = Agent(name="Harbour", model=scripted, tools=[HostedMCPTool(tool_config={**tool, "require_approval": "always"}, on_approval_request=approve)])
    result = await Runner.run(wary, call("tides__tide", port="Kiel"))
    assert asked == ["tide"] and result.final_output == "1. tides__tide: high at noon in Kiel", (asked, result.final_output)


class Desk(Computer):
    """A computer that writes down what is done."""

    environment = "browser"
    dimensions = (1024, 768)

    def __init__(self):
        self.done = []

    def screenshot(self):
        return "aW1n"

    def click(self, x, y, button):
        self.done.append(("click", x, y, button))

    def double_click(self, x, y): ...
    def scroll(self, x, y, scroll_x, scroll_y): ...
    def type(self, text): ...
    def wait(self): ...
    def move(self, x, y): ...
    def keypress(self, keys): ...
    def drag(self, path): ...


@job("ComputerTool with a safety check")
async def computer():
    click = {"type": "click", "x": 10, "y": 20, "button": "left"}
    written = call("computer", actions=[click], safety_checks=["It looks odd."])
    for model, task in ((drawer, "Click."), (clicker, "Click."), (scripted, written)):
        desk, checked = Desk(), []

        def agree(data):
            checked.append(data.safety_check.message)
            return True

        agent = Agent(name="Clerk", model=model, tools=[ComputerTool(desk, on_safety_check=agree)], model_settings=ModelSettings(truncation="auto"))
        result = await Runner.run(agent, task)
        assert desk.done == [("click", 10, 20, "left")] and checked == ["It looks odd."], (model, desk.done, checked)
        assert model == scripted or result.final_output == "It came to this: 1 acknowledged, data:image/png;base64,aW1n", result.final_output


@job("ImageGenerationTool")
async def image():
    tool = ImageGenerationTool(tool_config={"type": "image_generation", "partial_images": 1})
    for model, task, made in ((drawer, "Draw.", "aW1n"), (scripted, call("image_generation", prompt="img"), "R0lGODlhaW1n")):
        result = Runner.run_streamed(Agent(name="Painter", model=model, tools=[tool]), task)
        async for _ in result.stream_events():
            pass
        (drawn,) = [i.raw_item.result for i in result.new_items if getattr(i.raw_item, "type", "") == "image_generation_call"]
        assert drawn == made, drawn


@job("CustomTool with a grammar")
async def custom():
    async def ask(context, text):
        return f"asked {text}"

    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "SELECT " /[a-z]+/ " FROM " /[a-z]+/ ";"'}
    tool = CustomTool(name="sql", description="Asks the database.", on_invoke_tool=ask, format=form)
    for model, task in ((drawer, "Ask."), (scripted, call("sql", input="SELECT name FROM ships;"))):
        result = await Runner.run(Agent(name="Clerk", model=model, tools=[tool]), task)
        assert "asked SELECT name FROM ships;" in result.final_output, result.final_output


@job("Chat Completions")
async def chat():
    agent = Agent(name="Harbour", model=OpenAIChatCompletionsModel(scripted, client), tools=[tide])
    result = Runner.run_streamed(agent, call("tide", port="Brest"))
    async for _ in result.stream_events():
        pass
    assert result.final_output == "1. tide: high at noon in Brest", result.final_output


@job("MCPServerStreamableHttp with Berth's MCP server")
async def mcp_server():
    async with MCPServerStreamableHttp({"url": base_url.removesuffix("/v1") + "/mcp"}, client_session_timeout_seconds=60) as server:
        agent = Agent(name="Clerk", model=scripted, mcp_servers=[server])
        result = await Runner.run(agent, call("write", path="a.txt", content="ahoy") + call("run", command="cat a.txt"))
        assert "ahoy" in result.final_output, result.final_output


@job("traces")
async def traces():
    with trace("berth") as made:
        result = await Runner.run(Agent(name="Traced", model=reciter), "calm")
    get_trace_provider().force_flush()
    assert len(exported) > 3, exported
    found = await client.get(f"/traces/{made.trace_id}", cast_to=dict)
    assert found["workflow_name"] == "berth" and found["spans"] > 0 and found["errors"] == 0, found
    spans = (await client.get(f"/traces/{made.trace_id}/spans", cast_to=dict))["data"]
    data = [s["span_data"] for s in spans]
    assert any(d["type"] == "agent" and d["name"] == "Traced" for d in data), data
    assert any(d["type"] == "response" and d["response_id"] == result.last_response_id for d in data), data


main()
