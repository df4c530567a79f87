package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const message = "Some words.\n```sh timeout_ms=500\ncd /tmp\necho 'a'\n---parallel---\necho b\n```\nmore\n```python\nprint(1)\n```\n" +
	"```json tide\n{\"port\": }\n```\n```sh\nlast"

func user(text string) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
		Content: []berth.Content{{Type: "input_text", Text: text}}})
}

// turn runs one turn. It returns the text or the call.
func turn(t *testing.T, items []berth.Item, tools ...string) (text string, call berth.FunctionCall) {
	t.Helper()
	req := &model.Request{Items: items}
	for _, name := range tools {
		req.Tools = append(req.Tools, berth.FunctionTool{Name: name})
	}
	counted, _ := Provider{}.CountTokens(t.Context(), req)
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
			if d.Usage.TotalTokens != d.Usage.InputTokens+d.Usage.OutputTokens || d.Usage.InputTokens == 0 ||
				d.Usage.InputTokens != counted {
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

func TestScript(t *testing.T) {
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
		items = append(items, berth.NewItem(call),
			berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: call.CallID,
				Output: answer}))
	}
	text, _ := turn(t, items, "shell", "tide")
	if diff := cmp.Diff("1. exit 0: a; timeout: slow\n2. tide: at noon\n3. exit 7", text); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestPython(t *testing.T) {
	_, call := turn(t, []berth.Item{user("```python\n1\n```")}, "code_interpreter")
	if call.Name != "code_interpreter" || call.Arguments != `{"code":"1\n"}` {
		t.Errorf("called %+v", call)
	}
	if text, call := turn(t, []berth.Item{user("```python\n1\n```")}, "shell"); call.Name != "" ||
		text != "```python\n1\n```" {
		t.Errorf("without the tool: %q, %+v", text, call)
	}
}

func TestStop(t *testing.T) {
	if got := until("one two three", []string{"three", " two"}); got != "one" {
		t.Errorf("got %q", got)
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

func TestParse(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"options", "```sh timeout_ms=500 max_output_length=10 other=x\nls\n```",
			`shell {"commands":["ls"],"max_output_length":10,"timeout_ms":500}`},
		{"an option cannot replace the commands", "```sh commands=1\nls\n```", `shell {"commands":["ls"]}`},
		{"an empty block", "```sh\n```", `shell {"commands":[""]}`},
		{"several commands", "```sh\na\n---parallel---\nb\nc\n---parallel---\n```",
			`shell {"commands":["a","b\nc",""]}`},
		{"Windows line endings", "```sh\r\nls\r\n```\r\n", `shell {"commands":["ls"]}`},
		{"a longer fence", "````sh\ncat <<E\n```\nx\n```\nE\n````", `shell {"commands":["cat <<E\n` + "```\\nx\\n```" +
			`\nE"]}`},
		{"no fence in a line", "use ```sh\nls", ``},
		{"Python", "```python\nprint('<')\n\n1\n```", `code_interpreter {"code":"print('<')\n\n1\n"}`},
		{"other languages", "```ruby\n```\n```json\n{}\n```\n```\n```sh\n```", ``},
	}
	for _, tt := range tests {
		var got string
		for _, b := range parse(tt.in) {
			name, arguments := b.call()
			got += name + " " + arguments
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Many small deltas expose errors in the order of events.
func TestPieces(t *testing.T) {
	text := strings.Repeat("é", 3*piece+1)
	var sizes []int
	for d, err := range (Provider{}).Stream(t.Context(), &model.Request{Items: []berth.Item{user(text)}}) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := d.(model.Text); ok {
			sizes = append(sizes, utf8.RuneCountInString(d.Text))
		}
	}
	if diff := cmp.Diff([]int{piece, piece, piece, 1}, sizes); diff != "" {
		t.Errorf("characters of each delta (-want +got):\n%s", diff)
	}
}

func TestCancelled(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var got error
	for _, err := range (Provider{}).Stream(ctx, &model.Request{Items: []berth.Item{user(message)}}) {
		if got = err; err == nil {
			cancel(cause)
		}
	}
	if !errors.Is(got, cause) {
		t.Errorf("got %v, want %v", got, cause)
	}
}

func TestSummary(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"output":[{"outcome":{"type":"exit","exit_code":1},"stderr":"no such file\n","stdout":""}]}`,
			"exit 1: no such file"},
		{`{"output":[{"command_index":0,"outcome":{"type":"timeout"},"stdout":"a\nb\n\n"}]}`, "timeout: b"},
		{`{"output":[{}]}`, "no outcome"},
		{`{"output":[]}`, `f: {"output":[]}`},
		{`plain`, "f: plain"},
		{``, "f: "},
	}
	for _, tt := range tests {
		if got := (output{"f", tt.in}).summary(""); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.in, got, tt.want)
		}
	}
	list := json.RawMessage(
		`[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"x"},{"type":"input_text","text":"b"}]`)
	if got := outputText(list); got != "ab" {
		t.Errorf("a list: got %q, want ab", got)
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

// The echo of a long text has few deltas, each of whole characters.
func TestLongTextHasFewDeltas(t *testing.T) {
	long := strings.Repeat("aü€😀", 1<<20)
	n, back := 0, strings.Builder{}
	for _, p := range pieces(long) {
		if !utf8.ValidString(p) {
			t.Fatalf("a piece is not whole: %q", p)
		}
		n++
		back.WriteString(p)
	}
	if n > maxPieces || back.String() != long {
		t.Errorf("got %d pieces of %d bytes", n, back.Len())
	}
}

// docs/models.md names each kind of block that this model runs, and no other.
func TestBlocksInDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "`scripted` is not a language model.")
	text, _, _ = strings.Cut(text, "\n\n")
	var named []string
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		named = append(named, found[1])
	}
	var run []string
	for _, info := range []string{"bash", "js", "javascript", "json", "json TOOL", "py", "python", "sh", "shell", "text", "yaml"} {
		fence := "```" + info + "\n1\n```"
		if _, call := turn(t, []berth.Item{user(fence)}, "shell", codeInterpreter, "TOOL"); call.Name != "" {
			run = append(run, info)
		}
	}
	slices.Sort(named)
	if diff := cmp.Diff(run, named); diff != "" {
		t.Errorf("blocks that run, and those of the page (-run +named):\n%s", diff)
	}
}
