package dialogue

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

func items(t *testing.T, lines ...string) []berth.Item {
	t.Helper()
	var out []berth.Item
	for _, line := range lines {
		var it berth.Item
		if err := it.UnmarshalJSON([]byte(line)); err != nil {
			t.Fatal(err)
		}
		out = append(out, it)
	}
	return out
}

// short returns turns in a short form.
func short(turns []Turn) string {
	var b strings.Builder
	for _, t := range turns {
		fmt.Fprintf(&b, "%s:%s", t.Role, Text(t.Content))
		for _, p := range t.Parts {
			switch {
			case p.Call != nil:
				fmt.Fprintf(&b, " %s(%s)%s=%s", p.Call.Name, p.Call.Arguments, p.Call.ID,
					p.Call.Output.Text+Text(p.Call.Output.Content))
			case p.Reasoning != nil:
				fmt.Fprintf(&b, " [%s]", Text(p.Reasoning.Summary))
			default:
				fmt.Fprintf(&b, " %q", p.Text)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestRead(t *testing.T) {
	turns, err := Read(items(t,
		`{"role":"system","content":"Be brief."}`,
		`{"role":"user","content":"hi"}`,
		`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]}`,
		`{"type":"function_call","call_id":"c1","name":"a.b c","arguments":"{\"n\":12345678901234567890}"}`,
		`{"role":"assistant","content":"And:"}`,
		`{"type":"function_call","call_id":"c2","name":"f","arguments":"["}`,
		`{"type":"function_call","call_id":"c3","name":"","arguments":""}`,
		`{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]}`,
		`{"type":"function_call_output","call_id":"c1","output":"one"}`,
		`{"type":"function_call_output","call_id":"c1","output":"again"}`,
		`{"type":"computer_call","id":"x"}`,
		`{"role":"assistant","content":[]}`,
		`{"role":"critic","content":"why?"}`,
	), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want := `system:Be brief.
user:hi
assistant: [hm] a_b_c({"n":12345678901234567890})c1=one "And:" f({"invalid":"["})c2=two unknown({})c3=The call was interrupted; there is no output.
user:The output of an earlier call, c1, was:
again
user:why?
`
	if diff := cmp.Diff(want, short(turns)); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func TestIDs(t *testing.T) {
	for range 2 { // the same each time
		ids := IDs{Length: 9, Plain: true}
		got := []string{ids.For("a-1"), ids.For("a-1"), ids.For("call_0123456789"), ids.For("a b"), ids.For("")}
		want := []string{"a-1", "365bb0fc9", "ab14600fc", "c8687a08a", "e3b0c4429"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
	}
	fresh := NewIDs{Items: items(t, `{"type":"function_call","call_id":"old","name":"f"}`)}
	if got := fresh.For("new"); got != "new" {
		t.Errorf("got %q", got)
	}
	for _, taken := range []string{"old", "new", "", strings.Repeat("x", 65)} {
		if got := fresh.For(taken); got == taken || !strings.HasPrefix(got, berth.PrefixCall) {
			t.Errorf("%q: got %q", taken, got)
		}
	}
}

// For any items, each call has arguments that are an object, an output, and a name
// that vendors accept.
func FuzzRead(f *testing.F) {
	f.Add(`[{"type":"function_call","call_id":"c","name":"é","arguments":"x"},{"type":"function_call_output","call_id":"c","output":7}]`)
	f.Add(`[{"role":"user","content":[{"type":"input_image"}]},{"type":"reasoning","summary":[]},{"type":"function_call_output","call_id":"d"}]`)
	f.Fuzz(func(t *testing.T, in string) {
		var items []berth.Item
		if json.Unmarshal([]byte(in), &items) != nil {
			return
		}
		turns, err := Read(items, slog.New(slog.DiscardHandler))
		if err != nil && berth.ErrorCode(err) != berth.CodeInvalid {
			t.Fatal(err)
		}
		for _, turn := range turns {
			for _, p := range turn.Parts {
				if p.Call != nil && (!IsObject(p.Call.Arguments) || Name(p.Call.Name) != p.Call.Name) {
					t.Fatalf("got %+v", p.Call)
				}
			}
		}
	})
}
