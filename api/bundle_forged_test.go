package api_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/model"
)

// rewritten returns a bundle with each entry changed.
func rewritten(t *testing.T, bundle []byte, edit func(name string, body []byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for in := tar.NewReader(bytes.NewReader(bundle)); ; {
		head, err := in.Next()
		if err == io.EOF {
			check(t, w.Close())
			return out.Bytes()
		}
		check(t, err)
		body, err := io.ReadAll(in)
		check(t, err)
		body = edit(head.Name, body)
		check(t, w.WriteHeader(&tar.Header{Name: head.Name, Mode: 0o600, Size: int64(len(body))}))
		_, err = w.Write(body)
		check(t, err)
	}
}

// A forged container in a manifest is refused or ignored, and an import of it does no harm.
func TestForgedContainer(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil, model.Rule{Match: "played",
		Provider: &playedModel{turns: [][]any{shellTurn("echo one > made"), textTurn("well"), textTurn("done")}}})
	bundle := h.export(h.chained("played").id(), "")
	snapshots := h.call(200, "GET", "/v1/snapshots", nil).at("data").([]any)
	for name, change := range map[string]func(k map[string]any){
		"no file": func(k map[string]any) { k["files"] = []any{nil} },
		"a file elsewhere": func(k map[string]any) {
			k["files"] = []any{object{"path": "../../etc/passwd", "bytes": 1}}
		},
		"a file of no path": func(k map[string]any) { k["files"] = []any{object{"path": "", "bytes": 1}} },
		"a file of no name": func(k map[string]any) {
			k["files"] = []any{object{"path": "/mnt/data/a\nb", "bytes": 1}}
		},
		"a file of no length": func(k map[string]any) {
			k["files"] = []any{object{"path": "/mnt/data/a", "bytes": -1}}
		},
		"files without end": func(k map[string]any) {
			k["files"] = strings.Split(strings.Repeat("x,", 20_000), ",")
		},
		"no size": func(k map[string]any) { k["memory_limit"] = "9g" },
		"a life of no length": func(k map[string]any) {
			k["expires_after"] = object{"anchor": "last_active_at", "minutes": -1}
		},
		"a length of no layer": func(k map[string]any) { k["bytes"] = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			forged := rewritten(t, bundle, func(name string, body []byte) []byte {
				if name != "manifest.json" {
					return body
				}
				var m map[string]any
				check(t, json.Unmarshal(body, &m))
				k := m["container"].(map[string]any)
				change(k)
				if names, ok := k["files"].([]string); ok {
					many := []any{}
					for range names {
						many = append(many, object{"path": "/mnt/data/a", "bytes": 1})
					}
					k["files"] = many
				}
				body, err := json.Marshal(m)
				check(t, err)
				return body
			})
			h.call(400, "POST", "/v1/bundles", bytes.NewReader(forged), "application/x-tar")
		})
	}
	if left := h.call(200, "GET", "/v1/snapshots", nil).at("data").([]any); len(left) != len(snapshots) {
		t.Errorf("%d snapshots are left, want %d", len(left), len(snapshots))
	}
}

// A forged response is refused, or can be read, listed, continued, replayed and exported
// like others. None crashes the server.
func TestForgedResponses(t *testing.T) {
	t.Parallel()
	turns := [][]any{shellTurn("echo one > made"), textTurn("well"), textTurn("done")}
	for range 100 {
		turns = append(turns, textTurn("more"))
	}
	var opts api.Options
	h := newHouse(t, func(o *api.Options) {
		opts = *o
	}, model.Rule{Match: "played", Provider: &playedModel{turns: turns}})
	bundle := h.export(h.chained("played").id(), "")
	unwatched := httptest.NewServer(api.New(opts)) // forged responses violate the contract
	defer unwatched.Close()
	within := func(doc map[string]any, part string) map[string]any {
		inner := doc[part].(map[string]any)
		return inner
	}
	list := func(values ...any) []any { return values }
	imported := 0
	deep := any("x")
	for range 2000 {
		deep = list(deep)
	}
	for name, change := range map[string]func(doc map[string]any){
		"no input":           func(d map[string]any) { d["input"] = list(nil) },
		"no input at all":    func(d map[string]any) { d["input"] = nil },
		"input of no kind":   func(d map[string]any) { d["input"] = list(object{}) },
		"input without text": func(d map[string]any) { d["input"] = list(object{"type": "message", "role": "user"}) },
		"content of nothing": func(d map[string]any) {
			d["input"] = list(object{"type": "message", "role": "user", "content": list(nil)})
		},
		"a call of nothing": func(d map[string]any) {
			d["input"] = list(object{"type": "function_call_output"}, object{"type": "shell_call"},
				object{"type": "shell_call_output", "output": list(nil)}, object{"type": "apply_patch_call"},
				object{"type": "code_interpreter_call"},
				object{"type": "file_search_call"}, object{"type": "mcp_call"}, object{"type": "computer_call_output"},
				object{"type": "item_reference"}, object{"type": "compaction"})
		},
		"no output":              func(d map[string]any) { within(d, "body")["output"] = list(nil) },
		"output of no kind":      func(d map[string]any) { within(d, "body")["output"] = list(object{}, list(), 7) },
		"no tool":                func(d map[string]any) { within(d, "body")["tools"] = list(nil) },
		"no tool in the request": func(d map[string]any) { within(d, "request")["tools"] = list(nil) },
		"tools of no kind": func(d map[string]any) {
			within(d, "request")["tools"] = list(object{}, object{"type": "shell"}, object{"type": "mcp"},
				object{"type": "function"})
		},
		"a model of nothing": func(d map[string]any) {
			within(d, "body")["model"], within(d, "request")["model"] = "", ""
		},
		"no usage": func(d map[string]any) { within(d, "body")["usage"] = object{"input_tokens": -1} },
		"extension of nothing": func(d map[string]any) {
			within(d, "body")["berth"] = object{"turns": list(nil), "cost": nil, "container": nil}
		},
		"a prompt of nothing": func(d map[string]any) {
			within(d, "request")["prompt"], within(d, "body")["prompt"] = object{}, object{}
		},
		"events of nothing": func(d map[string]any) {
			for _, e := range d["events"].([]any) {
				for k := range e.(map[string]any) {
					if k != "type" && k != "sequence_number" {
						delete(e.(map[string]any), k)
					}
				}
			}
		},
		"text without end": func(d map[string]any) { within(d, "request")["text"] = object{"format": deep} },
	} {
		t.Run(name, func(t *testing.T) {
			digests := map[string]object{}
			forge := func(doc []byte) []byte {
				var d map[string]any
				check(t, json.Unmarshal(doc, &d))
				change(d)
				doc, err := json.Marshal(d)
				check(t, err)
				return doc
			}
			rewritten(t, bundle, func(name string, body []byte) []byte {
				if strings.HasPrefix(name, "responses/") {
					doc := forge(body)
					digests[name] = object{"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(doc)), "bytes": len(doc)}
				}
				return body
			})
			forged := rewritten(t, bundle, func(name string, body []byte) []byte {
				if strings.HasPrefix(name, "responses/") {
					return forge(body)
				}
				if name != "manifest.json" {
					return body
				}
				var m map[string]any
				check(t, json.Unmarshal(body, &m))
				for _, r := range m["responses"].([]any) {
					maps.Copy(r.(map[string]any), digests[r.(map[string]any)["path"].(string)])
				}
				body, err := json.Marshal(m)
				check(t, err)
				return body
			})
			do := func(method, path, body, kind string) (int, object) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, unwatched.URL+path, strings.NewReader(body))
				check(t, err)
				req.Header.Set("Content-Type", kind)
				resp, err := http.DefaultClient.Do(req)
				check(t, err)
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if resp.StatusCode >= 500 || err != nil {
					t.Errorf("%s %s: got %d %.300s, %v", method, path, resp.StatusCode, text, err)
				}
				var got object
				_ = json.Unmarshal(text, &got)
				return resp.StatusCode, got
			}
			status, done := do("POST", "/v1/bundles", string(forged), "application/x-tar")
			if status != 200 {
				return
			}
			imported++
			at := "/v1/responses/" + done["response_id"].(string)
			for _, path := range []string{at, at + "/input_items", at + "?stream=true", at + "/bundle"} {
				do("GET", path, "", "")
			}
			do("POST", "/v1/responses",
				`{"model":"played","input":"look","previous_response_id":"`+done["response_id"].(string)+`"}`,
				"application/json")
			do("POST", at+"/replay", `{"model":"played"}`, "application/json")
			do("DELETE", at, "", "")
		})
	}
	if imported < 5 {
		t.Errorf("only %d were imported, so the test covers little", imported)
	}
}
