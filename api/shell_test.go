package api_test

import (
	"testing"
)

// shellOutput returns what the first command of a response wrote, and the container in which it ran.
func shellOutput(r object) (stdout, container any) {
	return r.at("output", 1, "output", 0, "stdout"), r.at("output", 0, "environment", "container_id")
}

// A shell without an environment runs in the chain's container, or in a new one. So does bash, another name of it.
func TestShellWithoutEnvironment(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for _, tools := range []string{
		`"tools":[{"type":"shell"}]`,
		`"tools":[{"type":"shell","environment":null}]`,
		`"tools":[{"type":"bash"}]`,
		`"tools":[{"type":"bash","environment":{"type":"container_auto"}}],"tool_choice":"required"`,
		`"tools":[{"type":"bash"}],"tool_choice":{"type":"bash"}`,
		`"tools":[{"type":"bash"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"bash"}]}`,
		`"tools":[{"type":"bash"}],"tool_choice":{"type":"shell"}`,
		`"tools":[{"type":"shell"},{"type":"web_search_preview"}]`,
		`"tools":[{"type":"shell"},{"type":"computer_use_preview","display_width":1024,"display_height":768,"environment":"browser"}],"truncation":"auto"`,
	} {
		first := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"`+"```sh\\necho 41 > n; cat n\\n```"+`",`+tools+`}`)
		stdout, container := shellOutput(first)
		if stdout != "41\n" || first.at("output", 0, "type") != "shell_call" ||
			first.at("output", 1, "type") != "shell_call_output" || first.at("tools", 0, "type") != "shell" ||
			first.at("tools", 0, "environment", "container_id") != container || container == nil {
			t.Errorf("%s: got %v", tools, first)
			continue
		}
		second := h.call(200, "POST", "/v1/responses", `{"model":"scripted","previous_response_id":"`+first.id()+
			`","input":"`+"```sh\\necho $(($(cat n) + 1))\\n```"+`",`+tools+`}`)
		if stdout, again := shellOutput(second); stdout != "42\n" || again != container {
			t.Errorf("%s: the next response got %v", tools, second)
		}
	}
	for tools, param := range map[string]string{
		`"tools":[{"type":"shell"},{"type":"bash"}]`:                          "tools[1]",
		`"tools":[{"type":"bash","environment":"x"}]`:                         "tools[0].environment",
		`"tools":[{"type":"bash","zzz":1}]`:                                   "tools[0].zzz",
		`"tools":[{"type":"shell"}],"tool_choice":{"type":"bash","name":"x"}`: "tool_choice.name",
	} {
		if e := h.call(400, "POST", "/v1/responses", `{"model":"scripted","input":"x",`+tools+
			`}`); e.at("error", "param") != param {
			t.Errorf("%s: got %v", tools, e)
		}
	}
}
