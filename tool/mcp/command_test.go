package mcp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestSift: only tools that cannot be decoded are removed, and nothing else of a message is changed.
func TestSift(t *testing.T) {
	for message, want := range map[string]string{
		`{"id":1,"result":{"tools":[{"name":"a"},{"name":5},{"name":"b","title":[]},7],"nextCursor":"x"},"jsonrpc":"2.0"}`: `{"id":1,"jsonrpc":"2.0","result":{"nextCursor":"x","tools":[{"name":"a"}]}}`,
		`{"id":1,"result":{"tools":[{"name":"a"} ]}}`: `{"id":1,"result":{"tools":[{"name":"a"} ]}}`,
		`{"id":1,"result":{"tools":"a"}}`:             `{"id":1,"result":{"tools":"a"}}`,
		`"tools"`:                                     `"tools"`,
		`{"tools":`:                                   `{"tools":`,
	} {
		var reasons []string
		got := sift([]byte(message), func(name, reason string) { reasons = append(reasons, name+" "+reason) })
		if string(got) != want || got[0] == '{' && string(got) != message && len(reasons) != 3 {
			t.Errorf("%s: got %s, left out %q", message, got, reasons)
		}
	}
}

// TestMessages: what a command prints beside its messages does not end the session.
func TestMessages(t *testing.T) {
	const one, two = `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/progress"}` + "\n"
	printed := "listening on stdin\n" + one +
		"\n{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}\n{\"level\":\"info\"}\n[1]\n" + two + "half a line"
	for size := 1; size <= len(printed); size++ {
		var got bytes.Buffer
		m := messages{to: &got, omitted: func(string, string) { t.Error("a tool was left out") }}
		for rest := []byte(printed); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if err := m.write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != one+two {
			t.Fatalf("in pieces of %d: %q", size, &got)
		}
	}
	m := messages{to: &bytes.Buffer{}}
	line := []byte(strings.Repeat("x", 1<<20))
	var err error
	n := 0
	for ; err == nil && n <= 17; n++ {
		err = m.write(line)
	}
	if n != 17 || !errors.Is(err, errTooLarge) {
		t.Errorf("%d MiB without an end of line: %v", n, err)
	}
}

// A command that asks its client thousands of things, and may read none of the answers, is ended.
func TestCommandRequestsAreBounded(t *testing.T) {
	passed := 0
	in := newIntake(nil, "proj_a", &connectionError{})
	m := messages{ctx: t.Context(), intake: in, to: writerFunc(func(b []byte) { passed++ }), omitted: func(string, string) {}}
	ask := []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	var err error
	for range 2 * maxSent {
		if err = m.write(ask); err != nil {
			break
		}
	}
	if !errors.Is(err, errAsks) || passed != maxSent {
		t.Errorf("%d requests were passed on, %v", passed, err)
	}
	in.begin(maxMessage)
	if err := m.write([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n")); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
