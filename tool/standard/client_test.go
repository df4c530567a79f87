package standard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/custom"
	"github.com/berth-run/berth/tool/function"
	"github.com/berth-run/berth/tool/localshell"
	"github.com/berth-run/berth/tool/patch"
	"github.com/berth-run/berth/tool/shell"
	"github.com/berth-run/berth/tool/standard"
)

// A closed is a finished call: its deltas, the text of its last event, its item, and the
// reason of its refusal.
type closed struct {
	Deltas, Done string
	Item         berth.Item
	Refusal      string
}

// write writes arguments to a call in pieces of n characters and closes it. A call must not
// have events before its item can be shown.
func write(t *testing.T, c tool.Call, arguments string, n int) closed {
	t.Helper()
	var out closed
	take := func(events []berth.Event) {
		for _, ev := range events {
			if c.Item().IsZero() {
				t.Fatalf("%s comes before the item", ev.Type)
			}
			if ev.ItemID != c.Item().ID() {
				t.Errorf("%s is about %q, want %q", ev.Type, ev.ItemID, c.Item().ID())
			}
			if ev.Delta != nil {
				var s string
				if err := json.Unmarshal(ev.Delta, &s); err != nil || s == "" {
					t.Fatalf("delta %s: %v", ev.Delta, err)
				}
				out.Deltas += s
				continue
			}
			for _, end := range []*string{ev.Input, ev.Diff, ev.Arguments} {
				if end != nil {
					out.Done = *end
				}
			}
		}
	}
	for r := []rune(arguments); len(r) > 0; r = r[min(n, len(r)):] {
		take(c.Write(string(r[:min(n, len(r))])))
	}
	events, item, refusal := c.Close(arguments)
	out.Item, out.Refusal = item, refusal
	take(events)
	return out
}

var kinds = tool.NewRegistry(standard.Kinds(standard.Options{})...)

func screen(toolType string) tool.Tool {
	bound, err := kinds.Kind(toolType).Bind(tool.Context{}, berth.NewTool(berth.ComputerTool{Type: toolType,
		Environment: json.RawMessage(`"browser"`), DisplayWidth: 800, DisplayHeight: 600}))
	if err != nil {
		panic(err)
	}
	return bound
}

func customTool() tool.Tool { return custom.New(berth.CustomTool{Name: "c"}, "") }

func TestCustomInput(t *testing.T) {
	for _, tc := range []struct{ name, arguments, want string }{
		{"plain", `{"input":"SELECT 1"}`, "SELECT 1"},
		{"escapes", `{"input":"a\"b\\\n\ud83d\ude00 grüße"}`, "a\"b\\\n😀 grüße"},
		{"empty", `{"input":""}`, ""},
		{"beside others", `{"why":"so","input":"x","more":["input"]}`, "x"},
		{"twice", `{"input":"x","input":"y"}`, "x"},
		{"in a list", `{"input":["x"]}`, `{"input":["x"]}`},
		{"another name", `{"sql":"x"}`, "x"},
		{"nothing", `{}`, ""},
		{"no arguments", ``, ""},
		{"a string", `"x\ny"`, "x\ny"},
		{"no JSON", "*** Begin Patch\n+{", "*** Begin Patch\n+{"},
	} {
		for _, n := range []int{1, 2, 5, 1000} {
			got := write(t, customTool().NewCall("call_1"), tc.arguments, n)
			var item berth.CustomToolCall
			if err := got.Item.Decode(&item); err != nil {
				t.Fatal(err)
			}
			want := berth.CustomToolCall{ID: item.ID, Type: berth.ItemCustomToolCall, Status: berth.StatusCompleted,
				CallID: "call_1", Input: tc.want, Name: "c"}
			if diff := cmp.Diff(want, item); diff != "" || got.Deltas != tc.want || got.Done != tc.want ||
				got.Refusal != "" {
				t.Errorf("%s in pieces of %d: deltas %q, ended with %q, refused %q, item (-want +got):\n%s", tc.name, n,
					got.Deltas, got.Done, got.Refusal, diff)
			}
		}
	}
}

func TestPatchDiff(t *testing.T) {
	for _, tc := range []struct{ name, arguments, want string }{
		{"diff last", `{"type":"update_file","path":"a b.md","diff":"@@\n-x\n+\"y\"\n"}`, "@@\n-x\n+\"y\"\n"},
		{"diff first", `{"diff":"+ü\n","path":"a b.md","type":"create_file"}`, "+ü\n"},
		{"diff between", `{"path":"a b.md","diff":"+x","type":"create_file"}`, "+x"},
		{"no diff", `{"path":"a b.md","diff":null,"type":"create_file"}`, ""},
		{"delete with a diff", `{"type":"delete_file","path":"a b.md","diff":"-x"}`, ""},
	} {
		for _, n := range []int{1, 2, 5, 1000} {
			got := write(t, patch.Tool{}.NewCall("call_1"), tc.arguments, n)
			var item berth.ApplyPatchCall
			if err := got.Item.Decode(&item); err != nil {
				t.Fatal(err)
			}
			kind := item.Operation.Type
			diff := &tc.want
			if kind == berth.PatchDelete {
				diff = nil
			}
			want := berth.ApplyPatchCall{ID: item.ID, Type: berth.ItemApplyPatchCall, Status: berth.StatusCompleted,
				CallID:    "call_1",
				Operation: berth.PatchOperation{Type: kind, Diff: diff, Path: "a b.md"}}
			if d := cmp.Diff(want, item); d != "" || !strings.Contains(tc.arguments, kind) || got.Deltas != tc.want ||
				got.Done != tc.want || got.Refusal != "" {
				t.Errorf("%s in pieces of %d: deltas %q, ended with %q, refused %q, item (-want +got):\n%s", tc.name, n,
					got.Deltas, got.Done, got.Refusal, d)
			}
		}
	}
}

// Whatever a model writes, and in whatever pieces: a call is refused or it is
// whole, and its deltas are the content of its item.
func FuzzClientCalls(f *testing.F) {
	f.Add(`{"type":"create_file","path":"a","diff":"+\u00e9\ud83d\ude00"}`, 3)
	f.Add(`{"diff":"+x","type":"update_file","path":"a`, 1)
	f.Add(`{"input":"x","input":["y"]}`, 2)
	f.Add(`{"command":"ls","env":{"A":"b"}}`, 4)
	f.Add(`]}{"`, 2)
	f.Fuzz(func(t *testing.T, arguments string, n int) {
		if n < 1 || len(arguments) > 1<<12 || !utf8.ValidString(arguments) {
			return
		}
		for _, each := range []tool.Tool{customTool(), patch.Tool{}, localshell.Tool{},
			shell.New(nil, nil, shell.Limits{}), screen(berth.ToolComputer), screen(berth.ToolComputerPreview),
			function.New(berth.FunctionTool{Name: "f"}, "n")} {
			kind := each.Spec().Call
			got := write(t, each.NewCall("call_1"), arguments, n)
			if got.Item.IsZero() != (got.Item.Status() == "") || got.Item.IsZero() && got.Refusal == "" {
				t.Fatalf("%s: nothing is shown and nothing refused", kind)
			}
			if got.Item.IsZero() {
				continue
			}
			if (got.Item.Status() == berth.StatusCompleted) != (got.Refusal == "") {
				t.Errorf("%s: status %s, refused %q", kind, got.Item.Status(), got.Refusal)
			}
			if kind != berth.ItemShellCall && got.Deltas != got.Done {
				t.Errorf("%s: deltas %q, ended with %q", kind, got.Deltas, got.Done)
			}
			low, err := kinds.Lower(got.Item)
			if err != nil || low.Type() != berth.ItemFunctionCall || kinds.Name(got.Item) != each.Spec().Function.Name {
				t.Errorf("%s: lowered to %s, %v", kind, low.Raw(), err)
			}
		}
	})
}
