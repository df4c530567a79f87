package api_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
)

// rewritten is a bundle of which each entry is changed.
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

// What a forged manifest says of its container is refused, or is as if nothing was said;
// and what is made of it does no harm.
func TestForgedContainer(t *testing.T) {
	h := newHouse(t, nil, model.Rule{Match: "played", Provider: &playedModel{turns: [][]any{shellTurn("echo one > made"), textTurn("well"), textTurn("done")}}})
	bundle := h.export(h.chained("played").id(), "")
	snapshots := h.call(200, "GET", "/v1/snapshots", nil).at("data").([]any)
	for name, change := range map[string]func(k map[string]any){
		"no file":              func(k map[string]any) { k["files"] = []any{nil} },
		"a file elsewhere":     func(k map[string]any) { k["files"] = []any{object{"path": "../../etc/passwd", "bytes": 1}} },
		"a file of no path":    func(k map[string]any) { k["files"] = []any{object{"path": "", "bytes": 1}} },
		"a file of no name":    func(k map[string]any) { k["files"] = []any{object{"path": "/mnt/data/a\nb", "bytes": 1}} },
		"a file of no length":  func(k map[string]any) { k["files"] = []any{object{"path": "/mnt/data/a", "bytes": -1}} },
		"files without end":    func(k map[string]any) { k["files"] = strings.Split(strings.Repeat("x,", 20_000), ",") },
		"no size":              func(k map[string]any) { k["memory_limit"] = "9g" },
		"a life of no length":  func(k map[string]any) { k["expires_after"] = object{"anchor": "last_active_at", "minutes": -1} },
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
