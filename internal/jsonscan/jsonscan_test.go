package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// measure counts values and depth as encoding/json sees them.
func measure(v any) (values, depth int) {
	values = 1
	children := func(c any) {
		n, d := measure(c)
		values += n
		depth = max(depth, d+1)
	}
	switch v := v.(type) {
	case []any:
		for _, c := range v {
			children(c)
		}
	case map[string]any:
		for _, c := range v {
			children(c)
		}
	}
	return values, depth
}

var texts = []string{
	`1`, `""`, `"a\"b"`, `[]`, `{}`, ` [ ] `, `[[]]`, `{"a":{}}`, `[1,2,3]`, `{"a":1,"b":[1,{"c":"x,[{\\"}]}`,
	`{ "a" : "\\" , "b" : null }`, `[{"a":",\"[{"},"]",-1.5e3,true]`, `{"output":[],"x":{"output":[1]}}`,
}

func TestCheckCountsAsEncodingJSON(t *testing.T) {
	for _, text := range texts {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		values, depth := measure(v)
		if _, err := Check([]byte(text), values, depth); err != nil {
			t.Errorf("%s: %v for %d values, %d deep", text, err, values, depth)
		}
		if _, err := Check([]byte(text), values-1, depth); !errors.Is(err, ErrValues) {
			t.Errorf("%s: got %v for %d values of %d", text, err, values, values-1)
		}
		if _, err := Check([]byte(text), values, depth-1); depth > 0 && !errors.Is(err, ErrDepth) {
			t.Errorf("%s: got %v for depth %d of %d", text, err, depth, depth-1)
		}
	}
}

func TestField(t *testing.T) {
	for _, text := range texts {
		var want map[string]json.RawMessage
		_ = json.Unmarshal([]byte(text), &want)
		for name, v := range want {
			start, end, ok := Field([]byte(text), name)
			if !ok || text[start:end] != strings.TrimSpace(string(v)) {
				t.Errorf("%s: %s: got %q, %v", text, name, text[start:end], ok)
			}
		}
		if _, _, ok := Field([]byte(text), "absent"); ok {
			t.Errorf("%s: has what it has not", text)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range append(texts, `{"a`, `{"a":`, `{"a":]`, `"\`, `{"a":1,`, `]]`) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		start, end, ok := Field(text, "a")
		if start < 0 || start > end || end > len(text) {
			t.Fatalf("got %d:%d, %v", start, end, ok)
		}
		_, err := Check(text, 1<<30, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&v) != nil {
			return
		}
		if _, err := dec.Token(); err != io.EOF || bytes.Contains(text, []byte(`"a":`)) &&
			bytes.Count(text, []byte(`"a"`)) > 1 {
			return
		}
		if !unique(text) {
			return
		}
		values, depth := measure(v)
		if n, err := Check(text, values, depth); err != nil || n != values {
			t.Fatalf("%s: not %d values, %d deep", text, values, depth)
		}
	})
}

// unique reports whether no object has a name twice: a map would lose one.
func unique(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	var walk func() bool
	walk = func() bool {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		d, _ := tok.(json.Delim)
		names := map[string]bool{}
		for d != 0 && dec.More() {
			if d == '{' {
				name, _ := dec.Token()
				s, _ := name.(string)
				if names[s] {
					return false
				}
				names[s] = true
			}
			if !walk() {
				return false
			}
		}
		if d != 0 {
			_, err = dec.Token()
		}
		return err == nil
	}
	return walk()
}

// Of the texts that are valid JSON, Fields and Elements visit what encoding/json decodes.
func TestVisitsAll(t *testing.T) {
	for _, text := range append(texts, `{`, `[`, `{"a":1,}`, `[1,]`, `{"a"}`, `[1 2]`, `{} x`, `[] x`, `{,}`, `[,]`) {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		fields, elements := map[string]json.RawMessage{}, []json.RawMessage{}
		isObject := Fields([]byte(text), func(name, value []byte) bool { fields[string(name)] = value; return true })
		isList := Elements([]byte(text), func(value []byte) bool { elements = append(elements, value); return true })
		if want := json.Unmarshal([]byte(text), &object) == nil; isObject != want || want && !sameKeys(object, fields) {
			t.Errorf("%s: got fields %v, %s", text, isObject, fields)
		}
		if want := json.Unmarshal([]byte(text), &list) == nil; isList != want || want && len(list) != len(elements) {
			t.Errorf("%s: got elements %v, %s", text, isList, elements)
		}
	}
	refused := func([]byte) bool { return false }
	if Elements([]byte(`[1]`), refused) || Fields([]byte(`{"a":1}`), func(_, value []byte) bool {
		return refused(value)
	}) {
		t.Error("what was refused was accepted")
	}
}

func sameKeys(a, b map[string]json.RawMessage) bool {
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

func TestUnquote(t *testing.T) {
	for _, text := range []string{`""`, `"a"`, `"é\n\""`, `"\ud83d\ude00"`, "\"\xff\"", `"`, `a`, `"a"b"`, "\"\n\"",
		`"\x"`, `null`} {
		var want string
		valid := json.Unmarshal([]byte(text), &want) == nil && text != "null"
		if got, ok := Unquote([]byte(text)); ok != valid || ok && got != want {
			t.Errorf("%s: got %q, %v, want %q, %v", text, got, ok, want, valid)
		}
	}
}
