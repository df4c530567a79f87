package console

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// events are those of a response with text, reasoning and a shell call, as the API sends
// them.
var events = []string{
	`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","model":"m","output":[]}}`,
	`{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`,
	`{"type":"response.reasoning_text.delta","sequence_number":2,"output_index":0,"item_id":"rs_1","delta":"I thi"}`,
	`{"type":"response.reasoning_text.delta","sequence_number":3,"output_index":0,"item_id":"rs_1","delta":"nk."}`,
	`{"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"I think."}]}}`,
	`{"type":"response.output_item.added","sequence_number":5,"output_index":1,"item":{"id":"sh_1","type":"shell_call","status":"in_progress","call_id":"c","action":{"commands":[]}}}`,
	`{"type":"response.shell_call_command.added","sequence_number":6,"output_index":1,"command_index":0,"command":""}`,
	`{"type":"response.shell_call_command.delta","sequence_number":7,"output_index":1,"command_index":0,"delta":"uname"}`,
	`{"type":"response.output_item.added","sequence_number":8,"output_index":2,"item":{"id":"sho_1","type":"shell_call_output","status":"in_progress","call_id":"c","output":[]}}`,
	`{"type":"response.shell_call_output_content.delta","sequence_number":9,"output_index":2,"command_index":1,"delta":{"stdout":"Li"}}`,
	`{"type":"response.shell_call_output_content.delta","sequence_number":10,"output_index":2,"command_index":1,"delta":{"stdout":"nux","stderr":"bad"}}`,
	`{"type":"response.output_item.added","sequence_number":11,"output_index":3,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}`,
	`{"type":"response.output_text.delta","sequence_number":12,"output_index":3,"content_index":0,"delta":"**Done**"}`,
}

// TestStory: an item shows its deltas while it grows.
func TestStory(t *testing.T) {
	var s story
	for _, raw := range events {
		var ev berth.Event
		if err := json.Unmarshal([]byte(raw), &ev); err != nil {
			t.Fatal(err)
		}
		if err := s.apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.changed) != 4 || !s.head {
		t.Errorf("got %d changed entries, head %v, want 4 and the head", len(s.changed), s.head)
	}
	for i, want := range []string{"<p>I think.</p>", "</span>uname</pre>", ">Linux</pre>",
		"<p><strong>Done</strong></p>"} {
		var b bytes.Buffer
		if err := templates().ExecuteTemplate(&b, "entry", s.entries[i]); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, want) || !strings.Contains(got,
			`id="item-`+s.entries[i].ID()+`"`) {
			t.Errorf("entry %d: got %s, want %s", i, got, want)
		}
		if busy := strings.Contains(b.String(), "aria-busy"); busy != (i > 0) {
			t.Errorf("entry %d: running is %v", i, busy)
		}
	}
	if err := s.apply(&berth.Event{Type: berth.EventOutputItemAdded, OutputIndex: new(7),
		Item: &berth.Item{}}); err == nil {
		t.Error("an item out of order was accepted")
	}
}

// TestGrowBounded: what grows without end is shown from its end.
func TestGrowBounded(t *testing.T) {
	e := &entry{growing: true}
	delta, err := json.Marshal(berth.ShellDelta{Stdout: strings.Repeat("é", 10_000)})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		e.grow(&berth.Event{Type: berth.EventShellOutputDelta, Delta: delta, CommandIndex: new(0)})
	}
	e.grow(&berth.Event{Type: berth.EventShellOutputDelta, Delta: delta, CommandIndex: new(1 << 30)})
	e.grow(&berth.Event{Type: berth.EventShellOutputDelta, Delta: delta, CommandIndex: new(-1)})
	if out := e.Outputs(); len(out) != 1 || len(out[0].Stdout) > shownGrowing+len("…") ||
		!strings.HasPrefix(out[0].Stdout, "…é") {
		t.Errorf("got %d outputs, the first of %d bytes", len(out), len(out[0].Stdout))
	}
}

// TestPictures: a page shows pictures of a code interpreter's call, but no URL of another kind, and the files
// that the call changed.
func TestPictures(t *testing.T) {
	const pixel = "iVBORw0KGgo="
	var item berth.Item
	if err := json.Unmarshal([]byte(`{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"plot()","container_id":"cntr_1","outputs":[
		{"type":"image","url":"data:image/png;base64,`+pixel+`"},
		{"type":"image","url":"data:image/svg+xml;base64,`+pixel+`"},
		{"type":"image","url":"https://berth.invalid/spy.png"},
		{"type":"image","url":"data:image/png;base64,`+pixel+`\" onerror=\"x"},
		{"type":"image","url":"javascript:x"},
		{"type":"logs","logs":"done\n"}],
		"berth":{"files":[{"path":"/mnt/data/<b>.csv","type":"created","bytes":12}]}}`), &item); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "entry", &entry{Item: item}); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if strings.Count(got, "<img") != 1 || !strings.Contains(got, `src="data:image/png;base64,`+pixel+`"`) {
		t.Errorf("got %s, want one picture", got)
	}
	for _, want := range []string{"<summary>1 changed file</summary>",
		"created <code>/mnt/data/&lt;b&gt;.csv</code> 12 B", ">done\n</pre>"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// What a page shows of an item that grows is bounded, because it is drawn again with each delta.
func TestGrowingEntry(t *testing.T) {
	call, output := &entry{growing: true}, &entry{growing: true}
	for i := range 500 {
		call.grow(&berth.Event{Type: berth.EventShellCommandAdded, CommandIndex: &i,
			Command: new(strings.Repeat("c", 10<<10))})
		delta, err := json.Marshal(berth.ShellDelta{Stdout: strings.Repeat("o", 10<<10)})
		if err != nil {
			t.Fatal(err)
		}
		output.grow(&berth.Event{Type: berth.EventShellOutputDelta, CommandIndex: &i, Delta: delta})
	}
	call.grow(&berth.Event{Type: berth.EventShellCommandDone, CommandIndex: new(500), Command: new("last")})
	total := 0
	for _, command := range call.Commands() {
		total += len(command)
	}
	if total > shownGrowing || total < shownGrowing/2 || call.Commands()[len(call.Commands())-1] != "last" {
		t.Errorf("the page shows %d bytes of commands, want at most %d, with the last one", total, shownGrowing)
	}
	total = 0
	for _, o := range output.Outputs() {
		total += len(o.Stdout)
	}
	if total > shownGrowing || total < shownGrowing/2 {
		t.Errorf("the page shows %d bytes of outputs, want at most %d", total, shownGrowing)
	}
}

// An item with deep JSON is shown without indents, which would be far longer than it.
func TestDeepItem(t *testing.T) {
	raw := `{"id":"x","type":"mcp_list_tools","tools":` + strings.Repeat("[", 5000) + strings.Repeat("1,", 5000) + "1" +
		strings.Repeat("]", 5000) + "}"
	var item berth.Item
	if err := json.Unmarshal([]byte(raw), &item); err != nil {
		t.Fatal(err)
	}
	if got := (&entry{Item: item}).Details(); got != raw {
		t.Errorf("%d bytes became %d", len(raw), len(got))
	}
}

// Complete texts that are not cheap are rendered as well.
func TestRender(t *testing.T) {
	text, err := json.Marshal(strings.Repeat("*a*\n\n", 10_000))
	if err != nil {
		t.Fatal(err)
	}
	var item berth.Item
	if err := json.Unmarshal(
		[]byte(`{"id":"m","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":`+string(text)+`}]}`),
		&item); err != nil {
		t.Fatal(err)
	}
	e := &entry{Item: item}
	if got := e.HTML(); !strings.HasPrefix(string(got), "<pre>") {
		t.Errorf("before render: got %.40q", got)
	}
	render(t.Context(), []*entry{e, {growing: true}})
	if got := e.HTML(); !strings.HasPrefix(string(got), "<p><em>a</em></p>") {
		t.Errorf("got %.40q", got)
	}
}

// TestChangedFiles: the files that a call changed are links to its container while it runs, whatever their names.
func TestChangedFiles(t *testing.T) {
	const items = `[{"type":"shell_call","id":"sh_1","call_id":"c1","environment":{"type":"container_reference","container_id":"cntr_1"}},
		{"type":"shell_call_output","id":"o1","call_id":"c1","berth":{"files":[{"path":"/mnt/data/a b&<img src=x>.csv","type":"created","bytes":3},
			{"path":"/mnt/data/gone","type":"deleted","bytes":3}]}},
		{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_2","berth":{"files":[{"path":"/mnt/data/chart.png","type":"created","bytes":3}]}},
		{"type":"shell_call_output","id":"o2","call_id":"of another response","berth":{"files":[{"path":"/x","type":"created","bytes":3}]}},
		{"type":"message","id":"m1"}]`
	var out []berth.Item
	if err := json.Unmarshal([]byte(items), &out); err != nil {
		t.Fatal(err)
	}
	entries := entriesOf(out)
	findFiles(entries, func(id berth.ContainerID) bool { return id == "cntr_2" })
	var got []string
	for _, e := range entries {
		for _, f := range e.Files() {
			got = append(got, f.Link)
		}
	}
	want := []string{"/console/containers/cntr_1/files?path=%2Fmnt%2Fdata%2Fa+b%26%3Cimg+src%3Dx%3E.csv", "", "", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var page strings.Builder
	if err := templates().ExecuteTemplate(&page, "changes", entries[1].Files()); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); strings.Contains(text, "<img") || strings.Count(text, "<a ") != 1 {
		t.Errorf("got %s", text)
	}
}
