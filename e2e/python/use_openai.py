"""OpenAI's own client for Python, its newest version and the major before it."""

import asyncio
import base64
import io
import json
import time

import openai
from pydantic import BaseModel

from berth import auto, block, call, cells, drawer, embedder, items, job, main, mcp_url, outputs, reciter, scripted, sh, site_url

client = openai.OpenAI()
add = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": False}, "strict": True}


class Port(BaseModel):
    name: str
    ships: int


def container(response):
    return response.tools[0].environment.container_id


@job("shell in a container")
def shell():
    r = client.responses.create(model=scripted, input=sh("echo one; echo two >&2; exit 3"), tools=[auto])
    (o,) = outputs(r)
    assert (o.stdout, o.stderr, o.outcome.type, o.outcome.exit_code) == ("one\n", "two\n", "exit", 3), o
    assert r.status == "completed" and r.output_text == "1. exit 3: one", r.output_text
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens


@job("stream of a shell call")
def stream():
    seen, text = [], ""
    with client.responses.stream(model=scripted, input=sh("echo hi"), tools=[auto]) as events:
        for e in events:
            seen.append(e)
            if e.type == "response.output_text.delta":
                text += e.delta
        final = events.get_final_response()
    assert [e.sequence_number for e in seen] == list(range(len(seen))), [e.sequence_number for e in seen]
    assert text == final.output_text == "1. exit 0: hi", text
    kept = client.responses.retrieve(final.id)
    assert [i.id for i in kept.output] == [i.id for i in final.output]
    assert outputs(kept)[0].stdout == outputs(final)[0].stdout == "hi\n"


@job("stream resumed where it broke")
def resumed():
    whole = list(client.responses.create(model=scripted, input=sh("echo hi"), tools=[auto], stream=True))
    rest = list(client.responses.retrieve(whole[0].response.id, stream=True, starting_after=4))
    assert [(e.sequence_number, e.type) for e in rest] == [(e.sequence_number, e.type) for e in whole[5:]]


@job("several turns in one container")
def turns():
    one = client.responses.create(model=scripted, input=sh("cd /tmp; export N=41"), tools=[auto])
    two = client.responses.create(model=scripted, input=sh('echo "$PWD $((N + 1))"'), tools=[auto], previous_response_id=one.id)
    assert outputs(two)[0].stdout == "/tmp 42\n" and container(one) == container(two)


@job("requests as articles about the shell write them")
def articles():
    response = client.responses.create(
        model=scripted,
        tools=[{"type": "shell"}],
        input=sh("echo 41 | tee n.txt"),
    )
    assert response.output_text == "1. exit 0: 41" and outputs(response)[0].stdout == "41\n", response
    again = client.responses.create(
        model=scripted,
        tools=[{"type": "shell"}],
        previous_response_id=response.id,
        input=[{"role": "user", "content": sh("echo $(($(cat n.txt) + 1))")}],
    )
    assert outputs(again)[0].stdout == "42\n" and container(again) == container(response), again

    store = client.vector_stores.create(name="Handbooks")
    client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("pump.txt", b"Prime the pump with two strokes."))
    tools = [
        {"type": "bash"},
        {"type": "file_search", "vector_store_ids": [store.id], "max_num_results": 2},
        {"type": "web_search_preview"},
        {"type": "computer_use_preview", "display_width": 1024, "display_height": 768, "environment": "browser"},
    ]
    task = sh("cat n.txt") + "\n" + call("file_search", queries=["pump"]) + call("web_search", action="search", query="tides")
    beside = client.responses.create(model=scripted, tools=tools, previous_response_id=again.id, truncation="auto", input=task)
    kinds = [i.type for i in beside.output]
    assert kinds == ["shell_call", "shell_call_output", "file_search_call", "web_search_call", "message"], kinds
    assert outputs(beside)[0].stdout == "41\n" and container(beside) == container(response), beside
    streamed = [e.type for e in client.responses.create(model=scripted, tools=[{"type": "shell"}], input=sh("true"), stream=True)]
    assert "response.shell_call_command.done" in streamed and streamed[-1] == "response.completed", streamed


@job("files in and out")
def files():
    uploaded = client.files.create(file=("ports.csv", b"port,ships\nBrest,3\nKiel,5\n"), purpose="user_data")
    tools = [{"type": "shell", "environment": {"type": "container_auto", "file_ids": [uploaded.id]}}]
    count = "python3 -c \"import csv; print(sum(int(r['ships']) for r in csv.DictReader(open('ports.csv'))))\" | tee sum.txt"
    r = client.responses.create(model=scripted, input=sh(count), tools=tools)
    assert outputs(r)[0].stdout == "8\n", outputs(r)[0]
    made = [f for f in client.containers.files.list(container(r)) if f.source == "assistant"]
    assert [f.path for f in made] == ["/mnt/data/sum.txt"]
    assert client.containers.files.content.retrieve(made[0].id, container_id=container(r)).read() == b"8\n"
    client.containers.delete(container(r))
    assert client.files.content(uploaded.id).read().startswith(b"port,ships")
    client.files.delete(uploaded.id)


@job("skills")
def skills():
    text = "---\nname: tides\ndescription: Tells tides.\n---\n"
    skill = client.skills.create(files=[("tides/SKILL.md", text.encode(), "text/markdown"), ("tides/tide.sh", b"#!/bin/sh\necho high\n", "text/x-sh")])
    assert (skill.name, skill.default_version, skill.latest_version) == ("tides", "1", "1"), skill
    archive = client.skills.content.retrieve(skill.id).read()
    version = client.skills.versions.create(skill.id, files=[("tides.zip", archive, "application/zip")], default=True)
    assert client.skills.retrieve(skill.id).default_version == version.version == "2"
    inline = {"type": "inline", "name": "tides", "description": "x", "source": {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(archive).decode()}}
    for entry in {"type": "skill_reference", "skill_id": skill.id}, inline:
        tool = {"type": "shell", "environment": {"type": "container_auto", "skills": [entry]}}
        r = client.responses.create(model=scripted, input=sh("/home/oai/skills/tides-*/tide.sh"), tools=[tool])
        assert outputs(r)[0].stdout == "high\n", outputs(r)
    assert [v.version for v in client.skills.versions.list(skill.id, order="asc")] == ["1", "2"]
    assert client.skills.versions.delete("1", skill_id=skill.id).version == "1"
    assert client.skills.delete(skill.id).deleted


@job("container by reference")
def reference():
    c = client.containers.create(name="by hand", memory_limit="1g", expires_after={"anchor": "last_active_at", "minutes": 5})
    up = client.containers.files.create(c.id, file=("hail.txt", io.BytesIO(b"ahoy")))
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": c.id}}
    r = client.responses.create(model=scripted, input=sh("cat hail.txt"), tools=[tool])
    assert outputs(r)[0].stdout == "ahoy"
    assert client.containers.files.retrieve(up.id, container_id=c.id).bytes == 4
    client.containers.delete(c.id)
    try:
        client.containers.retrieve(c.id)
        raise AssertionError("the container is still there")
    except openai.NotFoundError:
        pass


@job("function calls")
def functions():
    task = call("add", a=1, b=2) + call("add", a=3, b=4)
    r = client.responses.create(model=scripted, input=task, tools=[add])
    for want in (3, 7):
        (c,) = [i for i in r.output if i.type == "function_call"]
        arguments = json.loads(c.arguments)
        assert sum(arguments.values()) == want, c
        r = client.responses.create(model=scripted, previous_response_id=r.id, tools=[add], input=[{"type": "function_call_output", "call_id": c.call_id, "output": str(want)}])
    assert r.output_text == "1. add: 3\n2. add: 7", r.output_text


@job("structured output")
def structured():
    r = client.responses.parse(model=reciter, input='Say only this: {"name":"Oslo","ships":7}', text_format=Port)
    assert r.output_parsed == Port(name="Oslo", ships=7)
    c = client.chat.completions.parse(model=reciter, messages=[{"role": "user", "content": 'Say only this: {"name":"Kiel","ships":5}'}], response_format=Port)
    assert c.choices[0].message.parsed == Port(name="Kiel", ships=5)


@job("background response, polled and cancelled")
def background():
    r = client.responses.create(model=scripted, input=sh("echo done"), tools=[auto], background=True)
    events = client.responses.retrieve(r.id, stream=True)
    assert list(events)[-1].type == "response.completed"
    assert client.responses.retrieve(r.id).status == "completed"
    r = client.responses.create(model=scripted, input=sh("sleep 1000"), tools=[auto], background=True)
    assert client.responses.cancel(r.id).status == "cancelled"


@job("conversation")
def conversation():
    c = client.conversations.create(metadata={"of": "python"}, items=[{"type": "message", "role": "user", "content": "calm"}])
    client.responses.create(model=scripted, input=sh("echo 41 > n"), tools=[auto], conversation=c.id)
    r = client.responses.create(model=scripted, input=sh("echo $(($(cat n) + 1))"), tools=[auto], conversation=c.id)
    assert outputs(r)[0].stdout == "42\n"
    types = [i.type for i in client.conversations.items.list(c.id, order="asc", limit=2)]
    assert types[0] == "message" and types.count("shell_call") == 2, types
    client.conversations.delete(c.id)


@job("Chat Completions: stream, tools, usage")
def chat():
    tools = [{"type": "function", "function": {k: v for k, v in add.items() if k != "type"}}]
    messages = [{"role": "user", "content": block("add", a=1, b=2)}]
    with client.chat.completions.stream(model=reciter, messages=messages, tools=tools, stream_options={"include_usage": True}) as s:
        for _ in s:
            pass
        asked = s.get_final_completion()
    (c,) = asked.choices[0].message.tool_calls
    assert asked.choices[0].finish_reason == "tool_calls" and asked.usage.total_tokens == 7
    assert c.function.parsed_arguments == {"a": 1, "b": 2}, c
    said = {"role": "assistant", "tool_calls": [{"id": c.id, "type": "function", "function": {"name": "add", "arguments": c.function.arguments}}]}
    messages += [said, {"role": "tool", "tool_call_id": c.id, "content": "3"}]
    answer = client.chat.completions.create(model=reciter, messages=messages, tools=tools)
    assert answer.choices[0].message.content == "It came to this: 3"


@job("Chat Completions: shell in a container")
def chat_shell():
    c = client.chat.completions.create(model=scripted, messages=[{"role": "user", "content": sh("echo ahoy")}], tools=[auto])
    assert c.choices[0].message.content == "1. exit 0: ahoy"


@job("Assistants: thread, run, tool outputs")
def assistants():
    a = client.beta.assistants.create(model=scripted, tools=[{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}])
    thread = client.beta.threads.create(messages=[{"role": "user", "content": call("tide", port="Brest")}])
    run = client.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=a.id, poll_interval_ms=50)
    assert run.status == "requires_action", run
    c = run.required_action.submit_tool_outputs.tool_calls[0]
    with client.beta.threads.runs.submit_tool_outputs_stream(thread_id=thread.id, run_id=run.id, tool_outputs=[{"tool_call_id": c.id, "output": "noon"}]) as s:
        s.until_done()
        (message,) = s.get_final_messages()
    assert message.content[0].text.value == "1. tide: noon", message
    client.beta.threads.delete(thread.id)
    client.beta.assistants.delete(a.id)


@job("Assistants: code_interpreter and file_search")
def assistant_tools():
    data = client.files.create(file=("depth.csv", b"a,1\nb,2\n"), purpose="assistants")
    a = client.beta.assistants.create(model=scripted, tools=[{"type": "code_interpreter"}, {"type": "file_search"}], tool_resources={"code_interpreter": {"file_ids": [data.id]}})
    code = """import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
n = len(open('/mnt/data/depth.csv').readlines())
open('/mnt/data/out.csv', 'w').write(str(n))
print('see sandbox:/mnt/data/out.csv')"""
    thread = client.beta.threads.create(messages=[{"role": "user", "content": f"```python\n{code}\n```"}])
    seen = []
    with client.beta.threads.runs.stream(thread_id=thread.id, assistant_id=a.id) as s:
        for e in s:
            seen.append(e.event)
        (message,) = s.get_final_messages()
        steps = s.get_final_run_steps()
    (ci,) = steps[0].step_details.tool_calls
    assert ci.code_interpreter.input.strip() == code and [o.type for o in ci.code_interpreter.outputs] == ["image", "logs"], ci
    assert client.files.content(ci.code_interpreter.outputs[0].image.file_id).read()[:4] == b"\x89PNG"
    assert [p.type for p in message.content] == ["image_file", "text"] and message.content[0].image_file.file_id == ci.code_interpreter.outputs[0].image.file_id, message
    text = message.content[1].text
    (cited,) = text.annotations
    assert cited.type == "file_path" and text.value[cited.start_index:cited.end_index] == cited.text == "sandbox:/mnt/data/out.csv", text
    assert client.files.content(cited.file_path.file_id).read() == b"2"
    assert client.files.retrieve(cited.file_path.file_id).purpose == "assistants_output"
    kept = client.beta.threads.messages.list(thread.id).data[0]
    assert kept.content == message.content, (kept.content, message.content)
    assert "thread.run.step.delta" in seen and seen[-1] == "thread.run.completed", seen

    # The next run of the thread finds the variables; a file attached to its message is searched.
    tides = client.files.create(file=("tides.md", b"High water is at noon."), purpose="assistants")
    both = "```python\nprint(n + 40)\n```\n" + call("file_search", queries=["high water"])
    client.beta.threads.messages.create(thread.id, role="user", content=both, attachments=[{"file_id": tides.id, "tools": [{"type": "file_search"}]}])
    run = client.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=a.id, poll_interval_ms=50)
    assert run.status == "completed", run
    steps = client.beta.threads.runs.steps.list(run.id, thread_id=thread.id, order="asc", include=["step_details.tool_calls[*].file_search.results[*].content"]).data
    calls = [c for step in steps if step.type == "tool_calls" for c in step.step_details.tool_calls]
    assert [c.type for c in calls] == ["code_interpreter", "file_search"], calls
    assert calls[0].code_interpreter.outputs[0].logs == "42", calls[0]
    assert calls[1].file_search.results[0].file_id == tides.id and "noon" in calls[1].file_search.results[0].content[0].text, calls[1]
    client.beta.threads.delete(thread.id)
    client.beta.assistants.delete(a.id)


@job("WebSocket")
def socket():
    with client.responses.connect() as ws:
        ws.response.create(model=scripted, input=sh("echo over the wire"), tools=[auto])
        for e in ws:
            if e.type in ("response.completed", "response.failed", "error"):
                break
    assert e.type == "response.completed" and outputs(e.response)[0].stdout == "over the wire\n", e


@job("code_interpreter: a file in, state, a chart")
def code():
    f = client.files.create(file=("n.txt", b"41"), purpose="user_data")
    tools = [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": [f.id]}}]
    draw = "import matplotlib.pyplot as plt\nplt.bar(['a'], [x])\nplt.show()"
    r = client.responses.create(model=scripted, input=cells("x = int(open('n.txt').read())", draw), tools=tools, include=["code_interpreter_call.outputs"])
    (image,) = [o for c in items(r, "code_interpreter_call") for o in c.outputs or [] if o.type == "image"]
    assert image.url.startswith(("data:image/png;base64,", "http")), image.url[:80]
    with client.responses.stream(model=scripted, input=cells("x + 1"), tools=tools, previous_response_id=r.id, include=["code_interpreter_call.outputs"]) as events:
        code = "".join(e.delta for e in events if e.type == "response.code_interpreter_call_code.delta")
        final = events.get_final_response()
    (c,) = items(final, "code_interpreter_call")
    assert code == c.code == "x + 1\n" and c.outputs[0].logs == "42" and c.container_id == items(r, "code_interpreter_call")[0].container_id, c
    client.containers.delete(c.container_id)


@job("vector store: uploads, batch, search; file_search with a citation")
def file_search():
    store = client.vector_stores.create(name="harbour")
    one = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("tides.md", b"High water is at noon."), attributes={"port": "Brest"}, poll_interval_ms=50)
    assert one.status == "completed", one
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=[("ropes.md", b"Ropes and nets."), ("ships.md", b"Seven ships are due.")], poll_interval_ms=50)
    assert (batch.file_counts.completed, batch.status) == (2, "completed"), batch
    (hit,) = client.vector_stores.search(store.id, query="high water", filters={"type": "eq", "key": "port", "value": "Brest"}).data
    assert (hit.file_id, hit.content[0].text) == (one.id, "High water is at noon."), hit
    tools = [{"type": "file_search", "vector_store_ids": [store.id]}]
    r = client.responses.create(model=reciter, input=block("file_search", queries=["ships due"]), tools=tools, include=["file_search_call.results"])
    (c,) = items(r, "file_search_call")
    assert c.queries == ["ships due"] and c.results[0].filename == "ships.md", c
    (cited,) = r.output[-1].content[0].annotations
    assert (cited.type, cited.file_id, cited.filename) == ("file_citation", c.results[0].file_id, "ships.md"), cited
    assert {f.status for f in client.vector_stores.files.list(store.id)} == {"completed"}
    client.vector_stores.delete(store.id)


@job("mcp: tools listed, approved and called")
def mcp():
    tool = {"type": "mcp", "server_label": "tides", "server_url": mcp_url, "require_approval": "always"}
    r = client.responses.create(model=scripted, input=call("tides__tide", port="Brest"), tools=[tool])
    (wanted,) = items(r, "mcp_approval_request")
    assert [t.name for t in items(r, "mcp_list_tools")[0].tools] == ["tide"] and json.loads(wanted.arguments) == {"port": "Brest"}
    answer = {"type": "mcp_approval_response", "approval_request_id": wanted.id, "approve": True}
    r = client.responses.create(model=scripted, input=[answer], tools=[tool], previous_response_id=r.id)
    (c,) = items(r, "mcp_call")
    assert (c.output, c.error, c.approval_request_id) == ("high at noon in Brest", None, wanted.id), c


@job("programs that call a shell and a function")
def programs():
    code = "const [a, b] = await Promise.all([tools.shell({commands: ['echo 20']}), tools.add({a: 10, b: 12})]); text(Number(a.output[0].stdout) + b.sum)"
    tools = [{"type": "programmatic_tool_calling"}, {**auto, "allowed_callers": ["programmatic"]}, {**add, "allowed_callers": ["programmatic"]}]
    r = client.responses.create(model=scripted, input=call("programmatic_tool_calling", code=code), tools=tools)
    (program,), (wanted,), (ran,) = items(r, "program"), items(r, "function_call"), items(r, "shell_call")
    assert program.code == code and json.loads(wanted.arguments) == {"a": 10, "b": 12} and wanted.caller.caller_id == ran.caller.caller_id == program.call_id, r
    answer = {"type": "function_call_output", "call_id": wanted.call_id, "output": json.dumps({"sum": 22})}
    r = client.responses.create(model=scripted, input=[answer], tools=tools, previous_response_id=r.id)
    (out,) = items(r, "program_output")
    assert (type(out).__name__, out.status, out.result, out.call_id) == ("ProgramOutput", "completed", "42", program.call_id) and r.output_text, r


@job("web_search: search, open a page, cite")
def web_search():
    task = block("web_search", type="search", queries=["tides"]) + block("web_search", type="open_page", url=site_url + "/tides")
    r = client.responses.create(model=reciter, input=task, tools=[{"type": "web_search"}], include=["web_search_call.action.sources"])
    search, page = items(r, "web_search_call")
    assert search.action.type == "search" and [s.url for s in search.action.sources] == [site_url + "/tides"], search
    assert page.action.type == "open_page" and page.action.url == site_url + "/tides", page
    text = r.output[-1].content[0]
    (cited,) = text.annotations
    assert (cited.type, cited.url, cited.title) == ("url_citation", site_url + "/tides", "Tides of Brest"), cited
    assert site_url in text.text[cited.start_index : cited.end_index]


@job("image_generation: the upstream's own, streamed, in a chain")
def own_images():
    tools = [{"type": "image_generation", "partial_images": 1}]
    with client.responses.stream(model=drawer, input="Draw a ship.", tools=tools) as stream:
        seen = [e for e in stream if "image" in e.type or getattr(getattr(e, "item", None), "type", "") == "image_generation_call"]
        one = stream.get_final_response()
    kinds = [e.type.removeprefix("response.") for e in seen]
    assert kinds == ["output_item.added"] + [f"image_generation_call.{k}" for k in ("in_progress", "generating", "partial_image", "completed")] + ["output_item.done"], kinds
    assert (seen[3].partial_image_b64, seen[3].item_id) == ("cGFydA==", seen[-1].item.id), seen[3]
    (image,) = items(one, "image_generation_call")
    assert (image.result, image.status, one.output_text) == ("aW1n", "completed", "0 images came before."), one
    two = client.responses.create(model=drawer, input="Another.", tools=tools, previous_response_id=one.id)
    assert two.output_text == "1 images came before.", two.output_text


@job("image_generation: another model's, and an edit")
def images():
    task = call("image_generation", prompt="a ship") + call("image_generation", prompt="blue", images=[1])
    user = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,c2Vh"}, {"type": "input_text", "text": task}]}]
    r = client.responses.create(model=scripted, input=user, tools=[{"type": "image_generation"}])
    assert [base64.b64decode(i.result) for i in items(r, "image_generation_call")] == [b"GIF89aa ship", b"GIF89ablue image:sea"], r.output


@job("computer: actions, a safety check, a screenshot")
def computer():
    tools = [{"type": "computer"}]
    for model, task in ((drawer, "Click."), (scripted, call("computer", actions=[{"type": "click", "x": 10, "y": 20}], safety_checks=["It looks odd."]))):
        one = client.responses.create(model=model, input=task, tools=tools)
        (act,) = items(one, "computer_call")
        (check,) = act.pending_safety_checks
        first = act.to_dict()["actions"][0]  # major version 2 has no type for it
        assert (first["type"], first["x"], check.message) == ("click", 10, "It looks odd."), act
        screen = {"type": "computer_call_output", "call_id": act.call_id, "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,aW1n"}}
        try:
            client.responses.create(model=model, input=[screen], tools=tools, previous_response_id=one.id)
            raise AssertionError("a safety check was not needed")
        except openai.BadRequestError as e:
            assert check.id in e.message, e
        screen["acknowledged_safety_checks"] = [{"id": check.id, "code": check.code, "message": check.message}]
        two = client.responses.create(model=model, input=[screen], tools=tools, previous_response_id=one.id)
        assert model == scripted or two.output_text == "It came to this: 1 acknowledged, data:image/png;base64,aW1n", two.output_text


@job("a custom tool with a grammar")
def grammar():
    sql = {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "SELECT " /[a-z]+/ " FROM " /[a-z]+/ ";"'}}
    for model, task in ((drawer, "Ask."), (scripted, call("sql", input="SELECT name FROM ships;"))):
        one = client.responses.create(model=model, input=task, tools=[sql])
        (asked,) = items(one, "custom_tool_call")
        assert (asked.name, asked.input) == ("sql", "SELECT name FROM ships;"), asked
        answer = [{"type": "custom_tool_call_output", "call_id": asked.call_id, "output": "Vasa"}]
        two = client.responses.create(model=model, input=answer, tools=[sql], previous_response_id=one.id)
        assert "Vasa" in two.output_text, two.output_text


@job("upload in parts")
def uploads():
    content = b"0123456789" * 1000
    done = client.uploads.upload_file_chunked(file=content, filename="n.txt", bytes=len(content), mime_type="text/plain", purpose="user_data", part_size=3000)
    assert done.status == "completed" and client.files.content(done.file.id).read() == content, done


@job("batch of responses")
def batches():
    lines = [{"custom_id": str(n), "method": "POST", "url": "/v1/responses", "body": {"model": scripted, "input": f"calm {n}"}} for n in range(3)]
    f = client.files.create(file=("in.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    b = client.batches.create(input_file_id=f.id, endpoint="/v1/responses", completion_window="24h")
    while b.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.05)
        b = client.batches.retrieve(b.id)
    assert b.status == "completed" and b.request_counts.completed == 3, b
    made = map(json.loads, client.files.content(b.output_file_id).text.splitlines())
    said = {m["custom_id"]: m["response"]["body"]["output"][0]["content"][0]["text"] for m in made}
    assert said == {str(n): f"calm {n}" for n in range(3)}, said


@job("embeddings")
def embeddings():
    r = client.embeddings.create(model=embedder, input=["calm sea", "storm"])
    assert [d.embedding for d in r.data] == [[8, 2], [5, 1]] and r.usage.total_tokens == 3, r
    assert client.embeddings.create(model=embedder, input="fog", encoding_format="float").data[0].embedding == [3, 1]


@job("many at once, async")
async def many():
    async with openai.AsyncOpenAI() as c:
        rs = await asyncio.gather(*(c.responses.create(model=scripted, input=sh(f"echo {n}"), tools=[auto]) for n in range(4)))
        assert [outputs(r)[0].stdout for r in rs] == [f"{n}\n" for n in range(4)]
        await asyncio.gather(*(c.containers.delete(container(r)) for r in rs))


@job("errors")
def errors():
    for want, code, request in (
        (openai.NotFoundError, "model_not_found", {"model": "none such", "input": "x"}),
        (openai.BadRequestError, "unknown_parameter", {"model": scripted, "input": "x", "extra_body": {"tide": "high"}}),
    ):
        try:
            client.responses.create(**request)
            raise AssertionError(request)
        except want as e:
            assert e.code == code and e.request_id, (e.code, e.request_id)
    try:
        client.responses.retrieve("resp_none")
        raise AssertionError("found")
    except openai.NotFoundError:
        pass


@job("models and token counts")
def models():
    assert {scripted, reciter} <= {m.id for m in client.models.list()}
    assert client.models.retrieve(scripted).id == scripted
    assert client.responses.input_tokens.count(model=scripted, input="calm sea").input_tokens > 0


main()
