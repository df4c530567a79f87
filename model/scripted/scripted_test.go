package scripted

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const message = "Some words.\n```sh timeout_ms=500\ncd /tmp\necho 'a'\n---parallel---\necho b\n```\nmore\n```python\nprint(1)\n```\n" +
	"```json tide\n{\"port\": }\n```\n```sh\nlast"

func user(text string) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user", Content: []berth.Content{{Type: "input_text", Text: text}}})
}

// turn asks once and returns the text or the call that is recited.
func turn(t *testing.T, items []berth.Item, tools ...string) (text string, call berth.FunctionCall) {
	t.Helper()
	req := &model.Request{Items: items}
	for _, name := range tools {
		req.Tools = append(req.Tools, berth.FunctionTool{Name: name})
	}
	finished := false
	for d, err := range (Provider{}).Stream(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		switch d := d.(type) {
		case model.Text:
			text += d.Text
		case model.Call:
			call.CallID += d.ID
			call.Name += d.Name
			call.Arguments += d.Arguments
		case model.Finish:
			finished = true
			if d.Usage.TotalTokens != d.Usage.InputTokens+d.Usage.OutputTokens || d.Usage.InputTokens == 0 {
				t.Errorf("usage: got %+v", d.Usage)
			}
		}
	}
	if !finished {
		t.Error("the turn did not finish")
	}
	call.Type = berth.ItemFunctionCall
	return text, call
}

func TestRecital(t *testing.T) {
	items := []berth.Item{user("earlier"), user(message)}
	answers := []string{
		`{"output":[{"outcome":{"type":"exit","exit_code":0},"stderr":"","stdout":"x\na\n"},{"outcome":{"type":"timeout"},"stderr":"slow","stdout":""}]}`,
		"high\nat noon",
		`{"output":[{"outcome":{"type":"exit","exit_code":7},"stderr":"","stdout":""}]}`,
	}
	want := []struct{ name, arguments string }{
		{"shell", `{"commands":["cd /tmp\necho 'a'","echo b"],"timeout_ms":500}`},
		{"tide", `{"port": }`}, // verbatim, also when it is not JSON
		{"shell", `{"commands":["last"]}`},
	}
	for i, w := range want {
		text, call := turn(t, items, "shell", "tide")
		if call.Name != w.name || call.Arguments != w.arguments || text != "" || call.CallID == "" {
			t.Fatalf("turn %d: got %+v and %q, want %+v", i, call, text, w)
		}
		answer, _ := json.Marshal(answers[i])
		items = append(items, berth.NewItem(call), berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: call.CallID, Output: answer}))
	}
	text, _ := turn(t, items, "shell", "tide")
	if diff := cmp.Diff("1. exit 0: a; timeout: slow\n2. tide: at noon\n3. exit 7", text); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestEchoAndMissingTool(t *testing.T) {
	if text, _ := turn(t, []berth.Item{user("Grüße\n")}); text != "Grüße\n" {
		t.Errorf("echo: got %q", text)
	}
	text, call := turn(t, []berth.Item{user(message)})
	if call.Name != "" || !strings.Contains(text, `"shell"`) {
		t.Errorf("without the tool: got %q and %+v", text, call)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message)
	f.Add("```sh\n```\n```\n``` json x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, b := range parse(text) {
			name, arguments := b.call()
			if b.shell && !json.Valid([]byte(arguments)) {
				t.Errorf("%s: %q is not JSON", name, arguments)
			}
		}
	})
}
