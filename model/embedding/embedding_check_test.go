package embedding_test

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model/embedding"
)

// An answer that is not one vector for each input is refused with the fault.
func TestCheck(t *testing.T) {
	for answer, want := range map[string]string{
		`{"data":[{"index":0,"embedding":[1,2e-3]},{"index":1,"embedding":[-1, 0]}]}`:     "",
		`{"data":[{"index":1,"embedding":[1]},{"index":0,"embedding":[1]}]}`:              "",
		`{"data":[{"index":0,"embedding":"AAAAAAAAgD8="},{"index":1,"embedding":[1,1]}]}`: "",
		`{"data":[{"index":0,"embedding":[1]}]}`:                                          "1 embeddings for an input of 2 texts",
		`{"data":null}`:                                                                   "0 embeddings",
		`{"data":{}}`:                                                                     "cannot read",
		`{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`:              "index 0 twice",
		`{"data":[{"index":0,"embedding":[1]},{"index":9,"embedding":[1]}]}`:              "index 9",
		`{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`:            "different lengths",
		`{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`:                "different lengths",
		`{"data":[{"index":0,"embedding":"!!"},{"index":1,"embedding":"!!"}]}`:            "base64",
		`{"data":[{"index":0,"embedding":"AAA="},{"index":1,"embedding":"AAA="}]}`:        "base64",
		`{"data":[{"index":0,"embedding":["1"]},{"index":1,"embedding":[1]}]}`:            "list of numbers",
		`{"data":[{"index":0,"embedding":[[1]]},{"index":1,"embedding":[1]}]}`:            "list of numbers",
		`{"data":[{"index":0,"embedding":[null]},{"index":1,"embedding":[1]}]}`:           "list of numbers",
		`{"data":[{"index":0},{"index":1,"embedding":[1]}]}`:                              "list of numbers",
		`{"data":[{"index":0,"embedding":{"a":1}},{"index":1,"embedding":[1]}]}`:          "list of numbers",
	} {
		err := embedding.Check([]byte(answer), 2)
		switch {
		case want == "" && err != nil, want != "" && (berth.ErrorCode(err) != berth.CodeUpstream ||
			!strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", answer, err, want)
		}
	}
}

func TestInputs(t *testing.T) {
	for input, want := range map[string]int{`"a"`: 1, `["a"]`: 1, `[ "a,]\"", "b" ]`: 2, `[1,2,3]`: 1, `[[1,2],[3]]`: 2,
		`[["a,b"],[1]]`: 2} {
		if got := embedding.Inputs([]byte(input)); got != want {
			t.Errorf("%s: got %d, want %d", input, got, want)
		}
	}
}
