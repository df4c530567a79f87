package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exportFrom exports the project of a server and returns the directory, the missing files, and the error.
func exportFrom(t *testing.T, routes map[string]http.HandlerFunc) (string, []exportFailure, error) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data":[]}`)) })
	for path, h := range routes {
		mux.HandleFunc("GET "+path, h)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	dir := filepath.Join(t.TempDir(), "out")
	e, err := newExporter(newClient(server.URL, true), dir, "proj_a", new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	defer e.root.Close()
	if err := e.project(t.Context()); err != nil {
		return dir, nil, err
	}
	err = e.finish()
	var summary exportSummary
	text, readErr := os.ReadFile(filepath.Join(dir, "export.json"))
	if err := errors.Join(readErr, json.Unmarshal(text, &summary)); err != nil {
		t.Fatal(err)
	}
	return dir, summary.Failures, err
}

func jsonAnswer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func refuse(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":{"message":"It is damaged."}}`))
	}
}

// What cannot be read is named, and the rest is exported. An object that was deleted is not missing.
func TestExportNamesWhatIsMissing(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write([]byte("half"))
	}
	dir, failures, err := exportFrom(t, map[string]http.HandlerFunc{
		"/v1/files":             jsonAnswer(`{"data":[{"id":"file-a"},{"id":"file-b"},{"id":"file-c"},{"id":"file-d"}]}`),
		"/v1/files/file-a":      jsonAnswer(`{"id":"file-a"}`),
		"/v1/files/file-b":      jsonAnswer(`{"id":"file-b"}`),
		"/v1/files/file-c":      refuse(404),
		"/v1/files/file-d":      jsonAnswer(`{"id":"file-d"}`),
		"/v1/files/{f}/content": jsonAnswer("whole"), "/v1/files/file-b/content": refuse(500), "/v1/files/file-d/content": cut,
	})
	if err == nil || !strings.Contains(err.Error(), "2 files are missing") {
		t.Errorf("got the error %v", err)
	}
	if len(failures) != 2 || failures[0] != (exportFailure{"files/file-b.content", "It is damaged."}) ||
		failures[1].File != "files/file-d.content" {
		t.Errorf("got the failures %+v", failures)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "files/file-a.content")); string(got) != "whole" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, none := range []string{"files/file-b.content", "files/file-c.json", "files/file-d.content"} {
		if _, err := os.Stat(filepath.Join(dir, none)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", none, err)
		}
	}
}

// All pages of a list are read, by the parameter of the API that the list belongs to.
func TestExportPages(t *testing.T) {
	pages := func(cursor string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue(cursor) == "one" {
				_, _ = w.Write([]byte(`{"data":[{"id":"two","status":"expired"}],"last_id":"two"}`))
				return
			}
			_, _ = w.Write([]byte(`{"data":[{"id":"one"}],"last_id":"one","has_more":true}`))
		}
	}
	dir, failures, err := exportFrom(t, map[string]http.HandlerFunc{
		"/v1/responses": pages("after"), "/v1/responses/{id}/input_items": pages("after"),
		"/v1/messages/batches": pages("after_id"),
		"/v1/containers":       pages("after"), "/v1/containers/{id}": jsonAnswer(`{"status":"expired"}`),
		"/v1/containers/{id}/archive": refuse(404),
	})
	if err != nil || failures != nil {
		t.Fatal(err, failures)
	}
	for _, file := range []string{"responses/two.json", "message_batches/two.json", "message_batches/two.results.ndjson",
		"containers/two.logs.jsonl"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	items, err := os.ReadFile(filepath.Join(dir, "responses/one.input_items.jsonl"))
	if want := `{"id":"one"}` + "\n" + `{"id":"two","status":"expired"}` + "\n"; string(items) != want {
		t.Errorf("got %q, %v, want %q", items, err, want)
	}
}

// A server cannot choose where files are written.
func TestExportHostileIDs(t *testing.T) {
	dir, failures, err := exportFrom(t, map[string]http.HandlerFunc{
		"/v1/traces": jsonAnswer(`{"data":[{"id":"../../x"},{"id":".bashrc"},{"id":"a/b"},{"id":""},{"id":"a\u001b[2J"},{}]}`),
	})
	if err == nil || strings.ContainsRune(err.Error(), '\x1b') || len(failures) != 6 {
		t.Errorf("got %v, %+v", err, failures)
	}
	found, err := os.ReadDir(dir)
	if err != nil || len(found) != 2 {
		t.Errorf("the export has %v, %v, want export.json and SHA256SUMS", found, err)
	}
}

// If the server ends, the export fails and has no summary.
func TestExportEnds(t *testing.T) {
	dir, _, err := exportFrom(t, map[string]http.HandlerFunc{
		"/v1/responses": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }})
	if err == nil {
		t.Error("the export did not fail")
	}
	if _, err := os.Stat(filepath.Join(dir, "export.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("export.json: %v", err)
	}
}
