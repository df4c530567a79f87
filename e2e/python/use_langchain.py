"""LangChain's client of OpenAI, over Responses and over Chat Completions."""

import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from berth import auto, call, cells, job, main, mcp_url, reciter, scripted, sh, site_url


@tool
def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


def converse(llm):
    """Have the model call a tool twice, and return its last message."""
    llm = llm.bind_tools([tide])
    messages = [HumanMessage(call("tide", port="Brest") + call("tide", port="Kiel"))]
    for _ in range(2):
        messages.append(llm.invoke(messages))
        messages.append(tide.invoke(messages[-1].tool_calls[0]))
    return llm.invoke(messages)


@job("Responses: tool over several turns")
def tools():
    answer = converse(ChatOpenAI(model=scripted, use_responses_api=True))
    assert answer.text == "1. tide: high at noon in Brest\n2. tide: high at noon in Kiel", answer
    assert answer.usage_metadata["total_tokens"] > 0 and answer.response_metadata["id"].startswith("resp_")


@job("Responses: the same with previous_response_id")
def chained():
    answer = converse(ChatOpenAI(model=scripted, use_responses_api=True, use_previous_response_id=True))
    assert answer.text.endswith("2. tide: high at noon in Kiel"), answer


@job("Chat Completions: tool over several turns")
def chat():
    answer = converse(ChatOpenAI(model=scripted, use_responses_api=False))
    assert answer.text == "1. tide: high at noon in Brest\n2. tide: high at noon in Kiel", answer


@job("streams")
def streams():
    for responses in (True, False):
        whole = None
        for chunk in ChatOpenAI(model=scripted, use_responses_api=responses, stream_usage=True).bind_tools([tide]).stream(call("tide", port="Oslo")):
            whole = chunk if whole is None else whole + chunk
        assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("tide", {"port": "Oslo"})], whole
        assert whole.usage_metadata["total_tokens"] > 0, whole


@job("structured output")
def structured():
    class Port(BaseModel):
        name: str

    for responses in (True, False):
        llm = ChatOpenAI(model=reciter, use_responses_api=responses).with_structured_output(Port, method="json_schema", strict=True)
        assert llm.invoke('Say only this: {"name":"Oslo"}') == Port(name="Oslo")


@job("shell in a container as a built-in tool, several turns")
def shell():
    llm = ChatOpenAI(model=scripted, use_responses_api=True, output_version="responses/v1").bind(tools=[auto])
    one = llm.invoke(sh("echo 41 > n"))
    assert [b["type"] for b in one.content if b["type"].startswith("shell")] in ([], ["shell_call", "shell_call_output"]), one.content
    two = llm.invoke(sh("echo $(($(cat n) + 1))"), previous_response_id=one.response_metadata["id"])
    assert two.text == "1. exit 0: 42", two


@job("shell in a container, streamed")
def streamed_shell():
    llm = ChatOpenAI(model=scripted, use_responses_api=True).bind(tools=[auto])
    assert "".join(c.text for c in llm.stream(sh("echo ahoy"))) == "1. exit 0: ahoy"


@job("code_interpreter, file_search, web_search and mcp by bind_tools")
def hosted():
    client = openai.OpenAI()
    store = client.vector_stores.create(name="langchain")
    client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("tides.md", b"High water is at noon."), poll_interval_ms=50)
    for tool, task, kind, says in (
        ({"type": "code_interpreter", "container": {"type": "auto"}}, cells("41 + 1"), "code_interpreter_call", "42"),
        ({"type": "file_search", "vector_store_ids": [store.id]}, call("file_search", queries=["high water"]), "file_search_call", "High water is at noon."),
        ({"type": "web_search"}, call("web_search", type="search", queries=["tides"]), "web_search_call", "Tides of Brest"),
        ({"type": "mcp", "server_label": "tides", "server_url": mcp_url, "require_approval": "never"}, call("tides__tide", port="Brest"), "mcp_call", "high at noon in Brest"),
    ):
        answer = ChatOpenAI(model=scripted, use_responses_api=True, output_version="responses/v1").bind_tools([tool]).invoke(task)
        assert kind in [b["type"] for b in answer.content] and says in answer.text, answer
        cited = [a for b in answer.content if b["type"] == "text" for a in b.get("annotations", [])]
        want = {"file_search_call": ("file_citation", "tides.md"), "web_search_call": ("url_citation", site_url + "/tides")}.get(kind)
        assert [(a["type"], a.get("filename") or a.get("url")) for a in cited] == ([want] if want else []), cited
    client.vector_stores.delete(store.id)


@job("files in and out")
def files():
    client = openai.OpenAI()
    f = client.files.create(file=("n.txt", b"41"), purpose="user_data")
    c = client.containers.create(name="langchain", file_ids=[f.id])
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": c.id}}
    ChatOpenAI(model=scripted, use_responses_api=True).bind(tools=[tool]).invoke(sh("echo $(($(cat n.txt) + 1)) > m.txt"))
    (made,) = [x for x in client.containers.files.list(c.id) if x.path == "/mnt/data/m.txt"]
    assert client.containers.files.content.retrieve(made.id, container_id=c.id).read() == b"42\n"
    client.containers.delete(c.id)


main()
