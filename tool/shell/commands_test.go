package shell

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// read feeds arguments to a commandReader in pieces of n bytes and returns the
// commands as the events show them: by their deltas and by their done events.
func read(t *testing.T, arguments string, n int) (deltas, ended []string) {
	t.Helper()
	var r commandReader
	for i := 0; i < len(arguments); i += n {
		for _, ev := range r.write(arguments[i:min(i+n, len(arguments))]) {
			switch ev.Type {
			case berth.EventShellCommandAdded:
				if *ev.CommandIndex != len(deltas) {
					t.Errorf("command %d added after %d others", *ev.CommandIndex, len(deltas))
				}
				deltas = append(deltas, "")
			case berth.EventShellCommandDelta:
				var s string
				if err := json.Unmarshal(ev.Delta, &s); err != nil {
					t.Fatal(err)
				}
				deltas[*ev.CommandIndex] += s
			case berth.EventShellCommandDone:
				ended = append(ended, *ev.Command)
			}
		}
	}
	return deltas, ended
}

func TestCommandReader(t *testing.T) {
	for _, tc := range []struct {
		name, arguments string
		want            []string
	}{
		{"plain", `{"commands":["ls -la","pwd"]}`, []string{"ls -la", "pwd"}},
		{"other keys", `{"timeout_ms":5,"x":["no"],"commands" : [ "a" ],"y":{"commands":["no"]}}`, []string{"a"}},
		{"escapes", `{"commands":["a\"b\\","\n\t\u0041"]}`, []string{`a"b\`, "\n\tA"}},
		{"surrogates", `{"commands":["\ud83d\ude00!","\ud83dx","\ud83d\n"]}`, []string{"😀!", "\ufffdx", "\ufffd\n"}},
		{"runes", `{"commands":["grüße 😀"]}`, []string{"grüße 😀"}},
		{"empty", `{"commands":["",""]}`, []string{"", ""}},
		{"none", `{"commands":[]}`, nil},
		{"not a list", `{"commands":"ls"}`, nil},
		{"a key's value", `{"a":"commands","b":["no"]}`, nil},
		{"nested", `{"commands":[["no"],"yes",{"k":"no"}]}`, []string{"yes"}},
	} {
		for _, n := range []int{1, 2, 3, 7, 1000} {
			deltas, ended := read(t, tc.arguments, n)
			if diff := cmp.Diff(tc.want, ended); diff != "" {
				t.Errorf("%s in pieces of %d: done (-want +got):\n%s", tc.name, n, diff)
			}
			if diff := cmp.Diff(tc.want, deltas); diff != "" {
				t.Errorf("%s in pieces of %d: deltas (-want +got):\n%s", tc.name, n, diff)
			}
		}
	}
}

// The reader must never fail, and must accept the same JSON as encoding/json.
func FuzzCommandReader(f *testing.F) {
	f.Add(`{"commands":["a","\u00e9\ud83d\ude00","\\"],"timeout_ms":1}`, 3)
	f.Add(`{"commands":["a`, 1)
	f.Add(`]}{"`, 2)
	f.Fuzz(func(t *testing.T, arguments string, n int) {
		if n < 1 || len(arguments) > 1<<12 {
			return
		}
		deltas, ended := read(t, arguments, n)
		if len(deltas) < len(ended) {
			t.Errorf("%d commands ended, %d added", len(ended), len(deltas))
		}
		var want struct{ Commands []string }
		strict := json.NewDecoder(strings.NewReader(arguments))
		if !json.Valid([]byte(arguments)) || strict.Decode(&want) != nil || len(want.Commands) == 0 {
			return
		}
		if strings.Count(strings.ToLower(arguments), "commands") > 1 || !strings.Contains(arguments, `"commands"`) {
			return // the last of several keys wins for encoding/json, and case is ignored
		}
		if diff := cmp.Diff(want.Commands, ended); diff != "" {
			t.Errorf("done (-want +got):\n%s", diff)
		}
	})
}
