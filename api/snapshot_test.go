package api_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// content returns the content of the first file of a container.
func (h *house) content(container string) string {
	h.t.Helper()
	list := h.call(200, "GET", "/v1/containers/"+container+"/files", nil)
	resp := h.send(h.t.Context(), "GET", fmt.Sprintf("/v1/containers/%s/files/%s/content", container,
		list.at("data", 0, "id")), nil)
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(got)
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers", `{"name":"dock"}`)
	body, kind := upload("hail.txt", strings.NewReader("ahoy"))
	h.call(200, "POST", "/v1/containers/"+c.id()+"/files", body, kind)
	s := h.call(200, "POST", "/v1/containers/"+c.id()+"/snapshots", `{"name":"monday"}`)
	if !strings.HasPrefix(s.id(), "snap_") || s.at("object") != "container.snapshot" ||
		s.at("container_id") != c.id() || s.at("name") != "monday" ||
		s.at("cause") != "requested" || s.at("bytes") != 4.0 || s.at("expires_at") != nil ||
		s.at("template") != "sha256:none" {
		t.Errorf("got %v, want the snapshot", s)
	}
	if diff := cmp.Diff(s, h.call(200, "GET", "/v1/snapshots/"+s.id(), nil)); diff != "" {
		t.Errorf("GET (-POST +GET):\n%s", diff)
	}
	h.call(200, "DELETE", "/v1/containers/"+c.id(), nil)
	unnamed := h.call(200, "POST", "/v1/containers",
		`{"name":"again","berth":{"snapshot_id":"`+s.id()+`","on_expiry":"snapshot"}}`)
	if unnamed.at("berth", "from_snapshot") != s.id() || unnamed.at("berth", "on_expiry") != "snapshot" {
		t.Errorf("got %v, want where it is from", unnamed)
	}
	if got := h.content(unnamed.id()); got != "ahoy" {
		t.Errorf("got %q", got)
	}
	second := h.call(200, "POST", "/v1/containers/"+unnamed.id()+"/snapshots", nil)
	page := h.call(200, "GET", "/v1/snapshots?limit=1", nil)
	if page.at("object") != "list" || page.at("first_id") != second.id() || page.at("has_more") != true {
		t.Errorf("got %v, want the newest of two", page)
	}
	if page = h.call(200, "GET", "/v1/snapshots?after="+second.id(), nil); page.at("first_id") != s.id() ||
		page.at("has_more") != false {
		t.Errorf("got %v, want the other one", page)
	}
	h.call(400, "GET", "/v1/snapshots?after=snap_none", nil)
	want := object{"id": s.id(), "object": "container.snapshot.deleted", "deleted": true}
	if diff := cmp.Diff(want, h.call(200, "DELETE", "/v1/snapshots/"+s.id(), nil)); diff != "" {
		t.Errorf("DELETE (-want +got):\n%s", diff)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if got := h.call(404, method, "/v1/snapshots/"+s.id(), nil); got.at("error",
			"message") != "Snapshot with id '"+s.id()+"' not found." {
			t.Errorf("%s after DELETE: got %v", method, got)
		}
	}
	for body, param := range map[string]string{
		`{"name":"x","berth":{"snapshot_id":"` + s.id() + `"}}`: "berth.snapshot_id",
		`{"name":"x","berth":{"on_expiry":"keep"}}`:             "berth.on_expiry",
		`{"name":"x","berth":{"snapshot":"x"}}`:                 "berth.snapshot",
		`{"name":"x","berth":{"on_lost":"new"}}`:                "berth.on_lost", // it continues nothing
	} {
		resp := h.send(t.Context(), "POST", "/v1/containers", body)
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode < 400 || resp.StatusCode > 499 || !strings.Contains(string(text), `"param":"`+param+`"`) {
			t.Errorf("%s: got %d %s, want an error about %s", body, resp.StatusCode, text, param)
		}
	}
	if got := h.call(400, "POST", "/v1/containers/"+unnamed.id()+"/snapshots", `{"nam":"x"}`); got.at("error",
		"param") != "nam" {
		t.Errorf("got %v", got)
	}
}

func TestForkAndPause(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers", `{"name":"dock","memory_limit":"4g"}`)
	body, kind := upload("hail.txt", strings.NewReader("ahoy"))
	h.call(200, "POST", "/v1/containers/"+c.id()+"/files", body, kind)
	for range 2 {
		if got := h.call(200, "POST", "/v1/containers/"+c.id()+"/pause", nil); got.at("berth", "paused") != true ||
			got.at("status") != "running" {
			t.Errorf("got %v, want it paused", got)
		}
	}
	if got := h.call(200, "GET", "/v1/containers", nil); got.at("data", 0, "berth", "paused") != true {
		t.Errorf("got %v, want it paused", got)
	}
	if got := h.call(200, "POST", "/v1/containers/"+c.id()+"/resume", nil); got.at("berth", "paused") != nil {
		t.Errorf("got %v, want it resumed", got)
	}
	h.call(200, "POST", "/v1/containers/"+c.id()+"/pause", nil)
	if got := h.content(c.id()); got != "ahoy" { // its next use
		t.Errorf("got %q", got)
	}
	fork := h.call(200, "POST", "/v1/containers/"+c.id()+"/fork", `{"name":"other"}`)
	if fork.id() == c.id() || fork.at("name") != "other" || fork.at("memory_limit") != "4g" ||
		fork.at("berth", "forked_from") != c.id() {
		t.Errorf("got %v, want a fork", fork)
	}
	if got := h.call(200, "POST", "/v1/containers/"+c.id()+"/fork", nil); got.at("name") != "dock" {
		t.Errorf("got %v, want one of the same name", got)
	}
	both := h.call(200, "POST", "/v1/containers/"+c.id()+"/forks", `{"name":"pair","count":2}`)
	if both.at("object") != "list" || both.at("data", 0, "name") != "pair-1" || both.at("data", 1, "name") != "pair-2" ||
		both.at("data", 2) != nil || both.at("has_more") != false {
		t.Errorf("got %v, want a list of two forks", both)
	}
	for _, body := range []string{`{}`, `{"count":0}`, `{"count":101}`, `{"count":"2"}`} {
		if got := h.call(400, "POST", "/v1/containers/"+c.id()+"/forks", body); got.at("error", "param") != "count" {
			t.Errorf("%s: got %v", body, got)
		}
	}
	h.call(200, "DELETE", "/v1/containers/"+c.id(), nil)
	if got := h.content(fork.id()); got != "ahoy" {
		t.Errorf("got %q", got)
	}
	for _, what := range []string{"fork", "pause", "resume", "snapshots"} {
		h.call(404, "POST", "/v1/containers/"+c.id()+"/"+what, nil)
	}
}
