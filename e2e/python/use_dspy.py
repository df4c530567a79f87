"""DSPy: programs whose model is LiteLLM's, over Chat Completions and over Responses."""

import dspy
import openai

from berth import api_key, base_url, block, job, main, reciter, scripted, sh

kinds = ("chat", "responses")


def lm(kind, model=reciter):
    return dspy.LM(f"openai/{model}", api_base=base_url, api_key=api_key, model_type=kind, cache=False)


def fields(**values):
    """Return a question that has the reciter answer with fields in DSPy's own format."""
    return "Say only this: " + "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in values.items()) + "[[ ## completed ## ]]"


def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


@job("a chain of thought, and a typed field as JSON")
def predict():
    for kind in kinds:
        with dspy.context(lm=lm(kind)):
            said = dspy.ChainOfThought("question -> hour: int")(question=fields(reasoning="The sun.", hour=12))
            assert (said.reasoning, said.hour) == ("The sun.", 12), said
        with dspy.context(lm=lm(kind), adapter=dspy.JSONAdapter()):
            said = dspy.Predict("question -> hours: list[int]")(question='Say only this: {"hours":[4,11]}')
            assert said.hours == [4, 11], said


@job("tools by native function calls")
def tools():
    class Harbour(dspy.Signature):
        """Answer with calls."""

        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()

    for kind in kinds:
        # LiteLLM must know the model as one that calls functions.
        with dspy.context(lm=lm(kind, "gpt-5.5"), adapter=dspy.ChatAdapter(use_native_function_calling=True)):
            said = dspy.Predict(Harbour)(question=block("tide", port="Kiel"), tools=[dspy.Tool(tide)])
            (made,) = said.calls.tool_calls
            assert (made.name, made.args) == ("tide", {"port": "Kiel"}), made


@job("ReAct whose tool runs commands in a container, files in and out")
def react():
    client = openai.OpenAI()
    c = client.containers.create(name="dspy")
    client.containers.files.create(c.id, file=("n.txt", b"40"))
    environment = {"type": "container_reference", "container_id": c.id}

    def run(command: str) -> str:
        """Run a command."""
        return client.responses.create(model=scripted, input=sh(command), tools=[{"type": "shell", "environment": environment}]).output_text

    step = fields(next_thought="Count.", next_tool_name="run", reasoning="Counted.", answer=42,
                  next_tool_args='{"command": "echo $(($(cat n.txt) + 1)) > m.txt; cp m.txt n.txt; cat m.txt"}')
    with dspy.context(lm=lm("chat")):
        said = dspy.ReAct("question -> answer: int", tools=[run], max_iters=2)(question=step)
    assert said.answer == 42 and "exit 0: 42" in said.trajectory["observation_1"], said
    (made,) = [f for f in client.containers.files.list(c.id) if f.path == "/mnt/data/m.txt"]
    assert client.containers.files.content.retrieve(made.id, container_id=c.id).read() == b"42\n"
    client.containers.delete(c.id)


main()
