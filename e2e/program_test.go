package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// programTools are the tools of a request whose programs call a shell and a function.
var programTools = option.WithJSONSet("tools", []any{
	map[string]any{"type": "programmatic_tool_calling"},
	map[string]any{"type": "shell", "environment": map[string]any{"type": "container_auto"},
		"allowed_callers": []string{"programmatic"}},
	map[string]any{"type": "function", "name": "ships", "allowed_callers": []string{"programmatic"}},
})

// programTask returns a request that runs a program.
func programTask(t *testing.T, code string) responses.ResponseNewParams {
	t.Helper()
	arguments, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		t.Fatal(err)
	}
	return responses.ResponseNewParams{Model: "scripted", Input: responses.ResponseNewParamsInputUnion{
		OfString: openai.String("```json programmatic_tool_calling\n" + string(arguments) + "\n```")}}
}

// programResults returns the results of the programs of a response.
func programResults(t *testing.T, r *responses.Response) (results []string) {
	t.Helper()
	for _, it := range r.Output {
		if it.Type != "program_output" {
			continue
		}
		var out struct{ Result string }
		if err := json.Unmarshal([]byte(it.RawJSON()), &out); err != nil {
			t.Fatal(err)
		}
		results = append(results, out.Result)
	}
	return results
}

// TestProgram runs programs that call a shell in a real container, and programs that take all
// they can get. The server continues to serve.
func TestProgram(t *testing.T) {
	s := newServer(t)
	for code, want := range map[string]string{
		`const names = ["a", "b", "c"]
await tools.shell({commands: names.map(n => "echo " + n + " > " + n)})
const read = await Promise.all(names.map(n => tools.shell({commands: ["cat " + n]})))
text(read.map(r => r.output[0].stdout.trim()))`: `["a","b","c"]`,
		"text('first')\nfor (let i = 0;; i++) i += 0": "first\n[The program failed] The program computed for more than 5 seconds and was stopped.\n    at program:2",
		`new Uint8Array(1 << 30).fill(1)`:             "[The program failed] The program was stopped: it needs more than the 256 MB of memory that it may use.",
		"const f = n => f(n + 1) + 1\nf(0)":           "[The program failed] RangeError: The program's functions call each other too deeply.",
		"for (;;) await tools.nope()":                 "[The program failed] Error: There is no tool named nope. There are: shell, ships",
		`text(await tools.shell("id"))`:               "",
		"for (let i = 0; i < 3; i++) text(i":          "[The program failed] SyntaxError: program: Line 2:",
		`text(await tools.shell({commands: []}))`:     "",
	} {
		r, err := s.client().Responses.New(t.Context(), programTask(t, code), programTools)
		if err != nil {
			t.Fatal(err)
		}
		if got := programResults(t, r); r.Status != "completed" || len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: %s, %q, want %q", code, r.Status, got, want)
		}
	}
}

// TestProgramKilled kills the server while a program waits for a command, and while it waits
// for the client. Each command runs once, and the program ends as if nothing had happened.
func TestProgramKilled(t *testing.T) {
	s := newServer(t)
	task := programTask(t, `
		await tools.shell({commands: ["echo one >> ran"]})
		await tools.shell({commands: ["echo two >> ran; until [ -e go ]; do sleep 0.05; done"]})
		const ships = await tools.ships({port: "Brest"})
		await tools.shell({commands: ["echo " + ships.number + " >> ran"]})
		const ran = await tools.shell({commands: ["cat ran"]})
		text(ran.output[0].stdout)`)
	task.Background = openai.Bool(true)
	r, err := s.client().Responses.New(t.Context(), task, programTools)
	if err != nil {
		t.Fatal(err)
	}
	get := func() bool {
		r, err = s.client().Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
		return err == nil
	}
	container := r.Tools[1].AsShell().Environment.ContainerID
	s.waitUntil("the second command runs", func() bool {
		out, _, _ := s.berth("exec", container, "--", "cat", "/mnt/data/ran")
		return strings.Contains(out, "two")
	})
	s.kill()
	s.start()
	if _, errs, err := s.berth("exec", container, "--", "touch", "/mnt/data/go"); err != nil {
		t.Fatalf("the container did not outlive the server: %v %s", err, errs)
	}
	s.waitUntil("the program waits for the client", func() bool { return get() && r.Status == "completed" })
	last := r.Output[len(r.Output)-1]
	if last.Type != "function_call" || last.Name != "ships" || !strings.Contains(last.RawJSON(), `"type":"program"`) {
		t.Fatalf("the response ends with %s", last.RawJSON())
	}
	s.kill()
	s.start()
	next := responses.ResponseNewParams{Model: "scripted", PreviousResponseID: openai.String(r.ID)}
	answer := option.WithJSONSet("input",
		[]any{map[string]any{"type": "function_call_output", "call_id": last.CallID, "output": `{"number": 3}`}})
	if r, err = s.client().Responses.New(t.Context(), next, programTools, answer); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one\ntwo\n3\n"}, programResults(t, r)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}
