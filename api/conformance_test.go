package api_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/api/contract"
)

var update = flag.Bool("update", false, "write what is refused into docs/divergences.md")

// A probe is an operation whose request fields are tried one at a time.
type probe struct {
	operation string
	// base returns a request that succeeds: its path, its body, and valid values for certain
	// places.
	base func(h *house) (path string, body, known map[string]any)
}

var probes = []probe{
	{"POST /responses", func(h *house) (string, map[string]any, map[string]any) {
		first := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"hello"}`).id()
		prompt := h.call(200, "POST", "/v1/prompts", `{"name":"x","template":{}}`).id()
		conv := h.call(200, "POST", "/v1/conversations", `{}`).id()
		return "/responses", map[string]any{"model": "scripted", "input": "hello"},
			with(map[string]any{"previous_response_id": first, "prompt.id": prompt, "conversation": conv,
				"context_management[0].type": "compaction"})
	}},
	{"POST /responses/input_tokens", func(*house) (string, map[string]any, map[string]any) {
		return "/responses/input_tokens", map[string]any{"model": "scripted", "input": "hello"}, with(nil)
	}},
	{"POST /chat/completions", func(*house) (string, map[string]any, map[string]any) {
		known := with(nil)
		delete(known, "image_url") // an object here
		return "/chat/completions", map[string]any{"model": "scripted",
			"messages": []any{map[string]any{"role": "user", "content": "hello"}}}, known
	}},
	{"POST /responses/compact", func(h *house) (string, map[string]any, map[string]any) {
		first := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"hello"}`).id()
		return "/responses/compact", map[string]any{"model": "scripted", "input": "hello"},
			with(map[string]any{"previous_response_id": first})
	}},
	{"POST /assistants", func(*house) (string, map[string]any, map[string]any) {
		return "/assistants", map[string]any{"model": "scripted"}, map[string]any{"model": "scripted"}
	}},
	{"POST /assistants/{assistant_id}", func(h *house) (string, map[string]any, map[string]any) {
		return "/assistants/" + h.assistant(), map[string]any{}, map[string]any{"model": "scripted"}
	}},
	{"POST /threads", func(*house) (string, map[string]any, map[string]any) {
		return "/threads", map[string]any{}, pictured
	}},
	{"POST /threads/{thread_id}", func(h *house) (string, map[string]any, map[string]any) {
		return strings.TrimPrefix(h.thread("hello"), contract.Prefix), map[string]any{}, nil
	}},
	{"POST /threads/{thread_id}/messages", func(h *house) (string, map[string]any, map[string]any) {
		return strings.TrimPrefix(h.thread("hello"), contract.Prefix) + "/messages", map[string]any{"role": "user",
			"content": "hello"}, pictured
	}},
	{"POST /threads/runs", func(h *house) (string, map[string]any, map[string]any) {
		return "/threads/runs", map[string]any{"assistant_id": h.assistant()}, map[string]any{"model": "scripted",
			"image_url.url": pictured["image_url.url"]}
	}},
	{"POST /threads/{thread_id}/runs", func(h *house) (string, map[string]any, map[string]any) {
		return strings.TrimPrefix(h.thread("hello"), contract.Prefix) + "/runs",
			map[string]any{"assistant_id": h.assistant()}, map[string]any{"model": "scripted",
				"image_url.url": pictured["image_url.url"]}
	}},
	{"POST /conversations", func(*house) (string, map[string]any, map[string]any) {
		return "/conversations", map[string]any{}, with(nil)
	}},
	{"POST /conversations/{conversation_id}", func(h *house) (string, map[string]any, map[string]any) {
		conv := h.call(200, "POST", "/v1/conversations", `{}`).id()
		return "/conversations/" + conv, map[string]any{"metadata": map[string]any{}}, nil
	}},
	{"POST /conversations/{conversation_id}/items", func(h *house) (string, map[string]any, map[string]any) {
		conv := h.call(200, "POST", "/v1/conversations", `{}`).id()
		return "/conversations/" + conv + "/items", map[string]any{"items": []any{}}, with(nil)
	}},
	{"POST /batches", func(h *house) (string, map[string]any, map[string]any) {
		form, kind := upload("a.jsonl", strings.NewReader("{}"), "purpose", "batch")
		id := h.call(200, "POST", "/v1/files", form, kind).id()
		return "/batches", map[string]any{"input_file_id": id, "endpoint": "/v1/responses", "completion_window": "24h"},
			map[string]any{"input_file_id": id, "endpoint": "/v1/responses",
				"output_expires_after": map[string]any{"anchor": "created_at", "seconds": 3600}}
	}},
	{"POST /uploads", func(*house) (string, map[string]any, map[string]any) {
		return "/uploads", map[string]any{"filename": "a.jsonl", "purpose": "user_data", "bytes": 1,
				"mime_type": "text/plain"},
			map[string]any{"bytes": 1, "filename": "a.jsonl",
				"expires_after": map[string]any{"anchor": "created_at", "seconds": 3600}}
	}},
	{"POST /containers", func(*house) (string, map[string]any, map[string]any) {
		return "/containers", map[string]any{"name": "x"},
			map[string]any{"expires_after": map[string]any{"anchor": "last_active_at", "minutes": 5}}
	}},
}

// with adds to values those that are valid in every request with messages and tools.
func with(values map[string]any) map[string]any {
	empty := map[string]any{"type": "object", "properties": map[string]any{}, "required": []any{},
		"additionalProperties": false}
	all := map[string]any{"model": "scripted", "image_url": "https://example.com/ship.png",
		"image_url.url": "https://example.com/ship.png",
		"file_url":      "https://example.com/letter.txt", "parameters": empty, "schema": empty}
	maps.Copy(all, values)
	return all
}

// pictured has a value for the only place in a message that requires a certain form.
var pictured = map[string]any{"image_url.url": "https://example.com/ship.png"}

// looked are the codes of errors of values that were checked and do not fit this request.
// The schema alone does not determine values that fit.
var looked = []string{"", "previous_response_not_found", "prompt_not_found", "invalid_encrypted_content"}

// Every field of every request in the contract is used, or refused by name and listed in
// docs/divergences.md. No field is unknown or has other values.
func TestRequestFields(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	refused := map[string]map[string]bool{} // a kind of refusal => the paths that refuse so
	for _, p := range probes {
		method, pattern, _ := strings.Cut(p.operation, " ")
		op := contract.Load().Find(method, pattern)
		path, base, known := p.base(h)
		visited := 0
		refuse := func(what string) {
			if refused[what] == nil {
				refused[what] = map[string]bool{}
			}
			refused[what][pattern] = true
		}
		op.Walk(base, known, func(at string, body any) (descend bool) {
			visited++
			at = contract.Generic(at)
			raw, err := json.Marshal(body)
			check(t, err)
			resp := h.send(t.Context(), method, contract.Prefix+path, string(raw))
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			check(t, err)
			var e struct {
				Error struct{ Message, Code, Param string }
			}
			if resp.StatusCode < 300 {
				return true
			}
			check(t, json.Unmarshal(answer, &e))
			switch {
			case resp.StatusCode >= 500:
				t.Errorf("%s with %s: %s answers %d %s", op, at, raw, resp.StatusCode, answer)
			case e.Error.Code == "unsupported_parameter" || e.Error.Code == "unsupported_value":
				refuse(refusal(e.Error.Param, e.Error.Message))
				return false
			case !slices.Contains(looked, e.Error.Code):
				refuse(refusal(e.Error.Param, e.Error.Message) + ": " + e.Error.Code)
			}
			return true
		})
		if visited == 0 {
			t.Errorf("%s: %d fields visited; the test sees too little", op, visited)
		}
	}
	maps.DeleteFunc(refused, func(what string, _ map[string]bool) bool { // items are refused as input is
		rest, items := strings.CutPrefix(what, "`items[")
		return items && refused["`input["+rest] != nil
	})
	var doc strings.Builder
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&doc, "| %s | `%s` |\n", what, strings.Join(slices.Sorted(maps.Keys(refused[what])), "`, `"))
	}
	const manual, begin = "../docs/divergences.md", "<!-- written by go test ./api -run TestRequestFields -update -->\n"
	old, err := os.ReadFile(manual)
	check(t, err)
	words, got, found := strings.Cut(string(old), begin)
	if !found {
		t.Fatalf("%s does not have the line %q", manual, begin)
	}
	if *update {
		check(t, os.WriteFile(manual, []byte(words+begin+doc.String()), 0o644))
	} else if got != doc.String() {
		t.Errorf("the refused fields differ from %s; if that is intended, run this test with -update. Refused:\n%s",
			manual, doc.String())
	}
}

var quoted = regexp.MustCompile(`'([a-z0-9_.-]+)'`)

// refusal names a field that was refused, and its type if that was the reason.
func refusal(param, message string) string {
	name, of := contract.Generic(param), ""
	if m := quoted.FindStringSubmatch(message); strings.HasSuffix(name, ".type") && m != nil && m[1] != param {
		name, of = strings.TrimSuffix(name, ".type"), " of type `"+m[1]+"`"
	}
	return "`" + name + "`" + of
}
