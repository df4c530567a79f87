"""LangChain's models of Anthropic, with Berth's Messages API."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from berth import base_url, call, job, main, scripted, sh, site_url

llm = ChatAnthropic(model=scripted, base_url=base_url.removesuffix("/v1"), api_key="none", max_tokens=1000)


@tool
def add(a: int, b: int) -> int:
    """Add numbers."""
    return a + b


@job("text, whole and streamed")
def text():
    assert "ahoy" in llm.invoke("ahoy").text
    pieces = [piece.text for piece in llm.stream("ahoy")]
    assert "ahoy" in "".join(pieces), pieces


@job("a tool over several turns")
def tools():
    bound = llm.bind_tools([add])
    history = [HumanMessage(call("add", a=40, b=1) + call("add", a=41, b=1))]
    while True:
        answer = bound.invoke(history)
        history.append(answer)
        if not answer.tool_calls:
            break
        for asked in answer.tool_calls:
            history.append(ToolMessage(str(add.invoke(asked["args"])), tool_call_id=asked["id"]))
    assert len(history) == 6 and "42" in answer.text, history


@job("structured output by a tool")
def structured():
    class Wind(BaseModel):
        name: str
        force: int

    answer = llm.with_structured_output(Wind).invoke(call("Wind", name="calm", force=0))
    assert answer == Wind(name="calm", force=0), answer


@job("code execution in a container, several turns")
def code():
    tool = {"type": "code_execution_20250825", "name": "code_execution"}
    first = llm.bind_tools([tool]).invoke(sh("echo 41 > n.txt"))
    container = first.response_metadata["container"]["id"]
    second = llm.bind_tools([tool], container=container).invoke(sh("echo $(($(cat n.txt) + 1))"))
    assert "42" in str(second.content), second


@job("web search with a citation")
def search():
    found = llm.bind_tools([{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]).invoke(
        call("web_search", type="search", queries=["tides of Brest"])
    )
    cited = [c for b in found.content if b["type"] == "text" for c in b.get("citations") or []]
    assert cited and cited[0]["url"] == site_url + "/tides", found


main()
