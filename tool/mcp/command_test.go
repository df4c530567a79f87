package mcp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestMessages: what a command prints beside its messages does not end the session.
func TestMessages(t *testing.T) {
	const one, two = `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", `{"jsonrpc":"2.0","method":"notifications/progress"}` + "\n"
	printed := "listening on stdin\n" + one + "\n{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}\n{\"level\":\"info\"}\n[1]\n" + two + "half a line"
	for size := 1; size <= len(printed); size++ {
		var got bytes.Buffer
		m := messages{to: &got}
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
