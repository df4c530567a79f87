package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file sends a request about files to a sandbox.
func (s e2bSandbox) file(h *house, method, path, body string, header ...string) (int, string) {
	h.t.Helper()
	fields := map[string]string{"E2b-Sandbox-Id": s.ID, "X-Access-Token": s.Token,
		"Content-Type": "application/octet-stream"}
	for i := 0; i < len(header); i += 2 {
		fields[header[i]] = header[i+1]
	}
	return h.sandboxCall(method, path, body, fields)
}

// rpc calls a method of filesystem.Filesystem and returns its answer.
func (s e2bSandbox) rpc(h *house, method, body string) object {
	h.t.Helper()
	status, text := s.file(h, "POST", "/filesystem.Filesystem/"+method, body, "Content-Type", "application/json")
	var got object
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK {
		h.t.Fatalf("%s %s: got %d %s", method, body, status, text)
	}
	return got
}

// A compressed upload arrives decompressed, whether or not its length is known, and also if it grows beyond
// what the server reads at a time.
func TestSandboxGzipUpload(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	dir := t.TempDir()
	for name, content := range map[string]string{"small": "hello", "large": strings.Repeat("hello ", 200_000)} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write([]byte(content))
		check(t, err)
		check(t, z.Close())
		path := "/files?path=" + dir + "/" + name
		if status, text := s.file(h, "POST", path, packed.String(), "Content-Encoding",
			"gzip"); status != http.StatusOK {
			t.Fatalf("%s: got %d %s", name, status, text)
		}
		if status, text := s.file(h, "GET", path, ""); status != http.StatusOK || text != content {
			t.Errorf("%s: got %d and %d bytes, want %d", name, status, len(text), len(content))
		}
	}
}

// Metadata of an upload is shown with the file until the next upload replaces the file.
func TestSandboxFileMetadata(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	dir := t.TempDir() // these sandboxes share the machine's directories
	status, text := s.file(h, "POST", "/files?path="+dir+"/a.txt", "a", "X-Metadata-Author", "Ada", "X-Metadata-Kind",
		"draft")
	if status != http.StatusOK || !strings.Contains(text, `"metadata":{"author":"Ada","kind":"draft"}`) {
		t.Fatalf("the upload: got %d %s", status, text)
	}
	entry := s.rpc(h, "Stat", `{"path":"`+dir+`/a.txt"}`)["entry"].(map[string]any)
	if got, _ := json.Marshal(entry["metadata"]); string(got) != `{"author":"Ada","kind":"draft"}` {
		t.Errorf("the file has the metadata %s", got)
	}
	listed := s.rpc(h, "ListDir", `{"path":"`+dir+`"}`)["entries"].([]any)[0].(map[string]any)
	if got, _ := json.Marshal(listed["metadata"]); string(got) != `{"author":"Ada","kind":"draft"}` {
		t.Errorf("the list has the metadata %s", got)
	}
	if status, text = s.file(h, "POST", "/files?path="+dir+"/a.txt", "b"); status != http.StatusOK ||
		strings.Contains(text, "metadata") {
		t.Errorf("an upload without metadata: got %d %s", status, text)
	}
	if got := s.rpc(h, "Stat", `{"path":"`+dir+`/a.txt"}`)["entry"].(map[string]any)["metadata"]; got != nil {
		t.Errorf("metadata of the former file is left: %v", got)
	}
	status, text = s.file(h, "POST", "/files?path="+dir+"/b.txt", "a", "X-Metadata-Long", strings.Repeat("x", 4096))
	if status != http.StatusBadRequest || !strings.Contains(text, "4096") {
		t.Errorf("too much metadata: got %d %s", status, text)
	}
	if status, _ = s.file(h, "GET", "/files?path="+dir+"/b.txt", ""); status != http.StatusNotFound {
		t.Errorf("the refused file: got %d", status)
	}
}

// A watcher learns of an upload as of a file that is written in its place: a write, after a creation and a change of
// its owner if the file is new. Names that only the server uses are not seen.
func TestSandboxWatchUploads(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	dir := t.TempDir()
	id := s.rpc(h, "CreateWatcher", `{"path":"`+dir+`","includeEntry":true,"allowNetworkMounts":true}`)["watcherId"]
	// events returns what was seen up to an upload of a file whose name marks the end.
	events := func(mark string) string {
		t.Helper()
		if status, text := s.file(h, "POST", "/files?path="+dir+"/"+mark, "x"); status != http.StatusOK {
			t.Fatalf("got %d %s", status, text)
		}
		var seen []string
		for t.Context().Err() == nil {
			body, err := json.Marshal(object{"watcherId": id})
			check(t, err)
			got, _ := s.rpc(h, "GetWatcherEvents", string(body))["events"].([]any)
			for _, e := range got {
				e := e.(map[string]any)
				if e["name"] == mark {
					return strings.Join(seen, ", ")
				}
				entry, _ := e["entry"].(map[string]any)
				if e["type"] != "EVENT_TYPE_RENAME" && entry["name"] != e["name"] {
					t.Errorf("the event %v has no entry of its file", e)
				}
				seen = append(seen, strings.TrimPrefix(e["type"].(string), "EVENT_TYPE_")+" "+e["name"].(string))
			}
		}
		t.Fatal("the upload was not seen")
		return ""
	}
	upload := func(name string) {
		t.Helper()
		if status, text := s.file(h, "POST", "/files?path="+dir+"/"+name, "text"); status != http.StatusOK {
			t.Fatalf("got %d %s", status, text)
		}
	}
	upload("a.txt")
	if got := events("mark1"); got != "CREATE a.txt, CHMOD a.txt, WRITE a.txt" {
		t.Errorf("a new file: %s", got)
	}
	upload("a.txt")
	if got := strings.TrimPrefix(events("mark2"), "CHMOD mark1, WRITE mark1, "); got != "WRITE a.txt" {
		t.Errorf("a file that is replaced: %s", got)
	}
	s.rpc(h, "Move", `{"source":"`+dir+`/a.txt","destination":"`+dir+`/b.txt"}`)
	if got := events("mark3"); !strings.HasSuffix(got, "CREATE b.txt") || strings.Contains(got, "WRITE b.txt") {
		t.Errorf("a file that is moved: %s", got)
	}
}

// Files of /proc have no size and no end that can be found; they are read to their end.
func TestSandboxReadsProc(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	for _, path := range []string{"/proc/self/status", "/proc/sys/kernel/osrelease", "/proc/self/mounts"} {
		if status, text := s.file(h, "GET", "/files?path="+path, ""); status != http.StatusOK || text == "" {
			t.Errorf("%s: got %d %q", path, status, text)
		}
	}
}

// Failures of requests for files have the words and the form of E2B's envd, which its clients compare.
func TestSandboxFileFailures(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	for path, want := range map[string]string{
		"/none/a.txt": `{"code":404,"message":"path '/none/a.txt' does not exist"}`,
		"/etc":        `{"code":400,"message":"path 'etc' is not a regular file"}`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/files?path="+path, nil)
		check(t, err)
		req.Header.Set("E2b-Sandbox-Id", s.ID)
		req.Header.Set("X-Access-Token", s.Token)
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		text, err := io.ReadAll(resp.Body)
		check(t, errors.Join(err, resp.Body.Close()))
		if got := strings.TrimSpace(string(text)); got != want {
			t.Errorf("%s: got %d %s, want %s", path, resp.StatusCode, got, want)
		}
		if got := resp.Header.Get("Content-Type"); got != "application/json; charset=utf-8" {
			t.Errorf("%s: the type is %q", path, got)
		}
	}
	// Nobody reaches /init, whatever the token, and the answer does not come from the sandbox.
	for _, token := range []string{"", "wrong", s.Token} {
		status, text := h.sandboxCall("POST", "/init", "{}", map[string]string{"E2b-Sandbox-Id": s.ID, "X-Access-Token": token})
		if status != http.StatusNotFound || !strings.Contains(text, "reserved for the E2B control plane") {
			t.Errorf("/init with the token %q: got %d %s", token, status, text)
		}
	}
}

// The target of a link is the path of the file to which it leads, as with E2B; of a link that leads nowhere, its own.
func TestSandboxLinkTarget(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o644))
	for name, target := range map[string]string{"link": "a.txt", "again": "link", "lost": "none"} {
		check(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	for name, want := range map[string]string{"link": "a.txt", "again": "a.txt", "lost": "lost"} {
		got, _ := s.rpc(h, "Stat", `{"path":"`+dir+`/`+name+`"}`)["entry"].(map[string]any)
		if got["symlinkTarget"] != filepath.Join(dir, want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
