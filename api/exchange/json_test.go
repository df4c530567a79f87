package exchange

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ParseJSON returns the value that encoding/json decodes from the same text.
func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , -2.5e+3 , true , false , null , "x\ny\u00e9\ud83d\ude00\ud800" ] , "b" : { } } `,
		`"x"`, `0`, `{"a":1,"a":2}`,
		`{"a":1,}`, `[1,]`, `{"\u0061":1,"b":{"a\"":"}"}}`, `{"a":1}{}`, `[[[[]]]]`, `{"a"`, "\xff", `{"a":01}`,
		"[\"\x01\"]", `[1 2]`, `{"":""}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseJSON(bytes.Clone(text))
		var want any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		wrong := dec.Decode(&want)
		if wrong == nil {
			if _, end := dec.Token(); end != io.EOF {
				wrong = io.ErrUnexpectedEOF
			}
		}
		if err == nil && wrong != nil {
			t.Fatalf("%q: got %v, encoding/json refuses it", text, got)
		}
		if err == nil {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%q (-encoding/json +got):\n%s", text, diff)
			}
			return
		}
		// It is stricter about names, UTF-8 and limits.
		if msg := err.Error(); wrong == nil && !strings.Contains(msg, " twice") && !strings.Contains(msg, "UTF-8") &&
			!strings.Contains(msg, "nested") && !strings.Contains(msg, "values") {
			t.Fatalf("%q: got %v, encoding/json takes it", text, err)
		}
	})
}

// Strings are not copied, so checking a large text needs little memory.
func TestParseJSONDoesNotCopyStrings(t *testing.T) {
	body := []byte(`{"input":"` + strings.Repeat("x", 16<<20) + `"}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ParseJSON(body); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("16 MB of text took %d bytes", n)
	}
}
