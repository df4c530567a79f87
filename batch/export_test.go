package batch

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// Inspect validates a file. A valid file must be read alike when its requests run.
func Inspect(t *testing.T, text string) {
	found, err := inspect(t.Context(), strings.NewReader(text), "/v1/responses")
	if err != nil {
		t.Fatal(err)
	}
	if len(found.errors) > 0 {
		return
	}
	n, in := 0, newLines(strings.NewReader(text))
	for ; ; n++ {
		line, number, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(line, number, "/v1/responses"); err != nil {
			t.Fatal(err)
		}
	}
	if n != found.requests {
		t.Errorf("%d requests, but %d were validated", n, found.requests)
	}
}
