package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/jsonscan"
)

func TestIndent(t *testing.T) {
	for _, text := range []string{`{"a":[1,{"b":"[,"}],"c":{},"d":[]}`, `"a"`, `[[[[[[1]]]]]]`, ` [1 , 2 ] `} {
		var want bytes.Buffer
		if err := json.Indent(&want, []byte(text), "", "  "); err != nil {
			t.Fatal(err)
		}
		if got := string(jsonscan.Indent([]byte(text))); got != want.String() {
			t.Errorf("%s: got %s, want %s", text, got, want.String())
		}
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("1,", 5000) + "1" + strings.Repeat("]", 5000)
	for _, text := range []string{deep, `{"a"`, ""} {
		if got := string(jsonscan.Indent([]byte(text))); got != text {
			t.Errorf("%.20q became %d bytes, want it as it is", text, len(got))
		}
	}
}

// FuzzIndent checks that no text becomes longer than its bound.
func FuzzIndent(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"[,"}],"c":{}}`), 1)
	f.Add([]byte("["), 9999)
	f.Add([]byte(`{"a":`), 2000)
	f.Fuzz(func(t *testing.T, text []byte, times int) {
		if len(text) == 0 || times < 1 {
			return
		}
		text = bytes.Repeat(text, min(times, 1+(32<<10)/len(text)))
		if got, most := jsonscan.Indent(text), 4*len(text)+4<<10; len(got) > most {
			t.Errorf("%d bytes became %d, want at most %d", len(text), len(got), most)
		}
	})
}
