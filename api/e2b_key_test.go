package api_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth/api"
)

// deleteKey deletes a key by its secret.
func (h *house) deleteKey(secret string) {
	h.t.Helper()
	key, err := h.store.KeyByHash(h.t.Context(), sha256.Sum256([]byte(secret)))
	check(h.t, err)
	check(h.t, h.store.DeleteKey(h.t.Context(), key.ID))
}

// With a key ends all that its holder got at E2B's door; what another key of the project got remains.
func TestSandboxTokensEndWithTheKey(t *testing.T) {
	var stop context.CancelFunc
	var later atomic.Int64
	h := newHouse(t, withSandboxOptions(t, &stop, func(o *sandboxParts) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	}))
	h.key("sk-leaked", "proj_mine")
	h.key("sk-mine", "proj_mine")
	made := h.newSandbox("sk-leaked", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	template, _ := h.newTemplate("sk-leaked", `{"name":"app"}`)
	volume := func(key, method, path, body string) (v struct{ VolumeID, Token string }) {
		status, text := h.sandboxCall(method, path, body, map[string]string{"X-API-Key": key})
		if status >= 300 {
			t.Fatalf("got %d %s", status, text)
		}
		check(t, json.Unmarshal([]byte(text), &v))
		return v
	}
	notes := volume("sk-leaked", "POST", "/volumes", `{"name":"notes"}`).VolumeID
	type grant struct {
		access, traffic, volume, upload string
	}
	ask := func(key string) (g grant) {
		var s e2bSandbox
		var link struct{ URL string }
		for path, v := range map[string]any{"POST /sandboxes/" + made.ID + "/connect": &s, "GET /templates/" +
			template + "/files/" + strings.Repeat("a", 64): &link} {
			method, path, _ := strings.Cut(path, " ")
			status, text := h.sandboxCall(method, path, "", map[string]string{"X-API-Key": key})
			if status >= 300 {
				t.Fatalf("%s: got %d %s", path, status, text)
			}
			check(t, json.Unmarshal([]byte(text), v))
		}
		return grant{s.Token, s.Traffic, volume(key, "GET", "/volumes/"+notes, "").Token, strings.TrimPrefix(link.URL,
			h.url)}
	}
	leaked, mine := ask("sk-leaked"), ask("sk-mine")
	if leaked.access != made.Token || leaked.traffic != made.Traffic {
		t.Error("the same key gets other tokens")
	}
	file := filepath.Join(t.TempDir(), "a.txt")
	try := func(who string, g grant, valid bool) {
		t.Helper()
		at := func(port, token, value string) map[string]string {
			return map[string]string{"E2b-Sandbox-Id": made.ID, "E2b-Sandbox-Port": port, token: value,
				"E2b-Traffic-Access-Token": g.traffic}
		}
		sum := sha256.Sum256([]byte(file + ":write::" + g.access))
		signed := "/files?" + url.Values{"path": {file},
			"signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}.Encode()
		for _, tt := range []struct {
			method, path, body string
			header             map[string]string
			want               int
		}{
			{"POST", "/process.Process/List", "{}", at("49983", "X-Access-Token", g.access), 200},
			{"POST", "/execute", `{}`, at("49999", "X-Access-Token", g.access), 400},
			{"GET", "/contexts", "", at("49999", "X-Other", "x"), 200},
			{"GET", "/", "", at("1", "X-Other", "x"), 502},
			{"POST", signed, "x", map[string]string{"Content-Type": "application/octet-stream"}, 200},
			{"GET", "/volumecontent/" + notes + "/dir?path=/", "", map[string]string{"Authorization": "Bearer " +
				g.volume}, 200},
			{"PUT", g.upload, "an archive", nil, 200},
		} {
			status, text := h.sandboxCall(tt.method, tt.path, tt.body, tt.header)
			if valid && status != tt.want || !valid && status != 401 && status != 403 {
				t.Errorf("%s: %s %.40s: got %d %s", who, tt.method, tt.path, status, text)
			}
		}
	}
	try("with both keys", leaked, true)
	try("with both keys", mine, true)
	h.deleteKey("sk-leaked")
	later.Add(int64(2 * time.Second))
	try("a deleted key", leaked, false)
	try("the other key", mine, true)
	altered := mine
	altered.access = leaked.access[:64] + mine.access[64:]
	if status, _ := h.sandboxCall("POST", "/process.Process/List", "{}", map[string]string{"E2b-Sandbox-Id": made.ID,
		"X-Access-Token": altered.access}); status != 401 {
		t.Errorf("a token that names another key: got %d", status)
	}
}

// Streams that a key has opened end when it is deleted: of the API, of a sandbox's token, and through a link.
func TestStreamsEndWithTheKey(t *testing.T) {
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.KeyCheck = 10 * time.Millisecond
		withSandboxes(t, &stop)(o)
	})
	h.key("sk-other", "proj_mine")
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	port := streamServer(t)
	var link struct{ URL string }
	status, text := h.sandboxCall("POST", "/v1/containers/cntr_"+s.ID+"/ports/"+port, "{}",
		map[string]string{"Authorization": "Bearer sk-mine"})
	if status != http.StatusOK {
		t.Fatalf("got %d %s", status, text)
	}
	check(t, json.Unmarshal([]byte(text), &link))
	type stream struct {
		url    string
		header map[string]string
	}
	open := func(st stream) *bufio.Reader {
		r, err := http.NewRequestWithContext(t.Context(), "GET", st.url, nil)
		check(t, err)
		for name, value := range st.header {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		check(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		body := bufio.NewReader(resp.Body)
		if line, err := body.ReadString('\n'); err != nil || line != "it streams\n" {
			t.Fatalf("%s: got %q %v", st.url, line, err)
		}
		return body
	}
	atPort := h.url + "/v1/containers/cntr_" + s.ID + "/ports/" + port + "/"
	mine := map[string]*bufio.Reader{}
	for name, st := range map[string]stream{
		"a key":  {atPort, map[string]string{"Authorization": "Bearer sk-mine"}},
		"a link": {link.URL, nil},
		"a traffic token": {h.url + "/", map[string]string{"E2b-Sandbox-Id": s.ID, "E2b-Sandbox-Port": port,
			"E2b-Traffic-Access-Token": s.Traffic}},
	} {
		mine[name] = open(st)
	}
	other := open(stream{atPort, map[string]string{"Authorization": "Bearer sk-other"}})
	h.deleteKey("sk-mine")
	for name, body := range mine {
		for {
			if _, err := body.ReadString('\n'); err != nil {
				t.Logf("the stream of %s ended: %v", name, err)
				break
			}
		}
	}
	for range 3 {
		if line, err := other.ReadString('\n'); err != nil || line != "it streams\n" {
			t.Errorf("the stream of another key: got %q %v", line, err)
		}
	}
}

// streamServer is a server whose answer never ends, and returns its port.
func streamServer(t *testing.T) string {
	return served(t, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(w, "it streams\n"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
}
