package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestNames: pages name keys and projects by what people call them, also by hostile names, and lead from usage to the
// runs behind it.
func TestNames(t *testing.T) {
	const hostile = `laptop <img src=x onerror=alert(1)>`
	id := "key_" + strings.Repeat("a", 32)
	now := time.Now().Unix()
	api := &stubAPI{answers: map[string]any{
		"/v1/organization/usage/completions": map[string]any{"data": []any{map[string]any{"start_time": now,
			"results": []any{map[string]any{"input_tokens": 5, "num_model_requests": 1, "api_key_id": id, "model": "m<b>"}}}}},
		"/v1/organization/audit": listed(map[string]any{"seq": 1, "time": time.Now(), "project": "proj_1", "key": id,
			"action": "key.created", "object": id}),
		"/v1/organization/spend": listed(map[string]any{"project_id": "proj_1", "api_key_id": id, "used": berth.Cost{Currency: "usd"}},
			map[string]any{"project_id": "proj_1", "used": berth.Cost{Currency: "usd"}}),
		"/v1/responses": listed(), "/v1/containers": listed(),
	}}
	c := New(api, slog.New(slog.DiscardHandler))
	c.Keys = func(context.Context) map[berth.KeyID]string { return map[berth.KeyID]string{berth.KeyID(id): hostile} }
	c.Names = func(context.Context, berth.ProjectID) string { return "Harbour <i>" }
	for path, wants := range map[string][]string{
		"usage?by=api_key_id": {"laptop &lt;img", id},
		"usage?by=model&days=14": {`<a href="/console/responses?model=m%3Cb%3E&amp;range=14d&amp;sort=cost"`,
			`<a href="/console/responses?range=14d&amp;sort=cost">All</a>`},
		"audit": {">laptop &lt;img src=x onerror=alert(1)&gt;</a>", ">Harbour &lt;i&gt;</a>"},
		"":      {"laptop &lt;img", "Harbour &lt;i&gt;"},
	} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/"+path, nil))
		for _, want := range wants {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%q has no %q: %d %s", path, want, w.Code, w.Body)
			}
		}
		if strings.Contains(w.Body.String(), "<img src=x") || strings.Contains(w.Body.String(), "<i>") {
			t.Errorf("%q has the markup of a name", path)
		}
	}
}

// TestRestored: a container that was restored names its snapshot, and keeps the idle time of the one it is of.
func TestRestored(t *testing.T) {
	old := berth.Container{ID: "cntr_old", ExpiresAfter: berth.ExpiresAfter{Anchor: "last_active_at", Minutes: 90}}
	made := berth.Container{ID: "cntr_new", Status: berth.ContainerRunning,
		Berth: berth.ContainerBerth{FromSnapshot: "snap_1", Template: "sha256:1"}}
	api := &stubAPI{answers: map[string]any{"/v1/containers/cntr_old": old, "/v1/containers/cntr_new": made,
		"/v1/snapshots/snap_1":                  berth.Snapshot{ID: "snap_1", ContainerID: "cntr_old", Name: "before <the> storm"},
		"/v1/containers/cntr_new/stats":         berth.ContainerStats{},
		"/v1/containers/cntr_new/stats/history": listed(), "/v1/containers/cntr_new/logs": listed(), "/v1/responses": listed(),
		"/v1/templates": listed(berth.Template{ID: "sha256:1", Names: []string{"data-science"}}),
	}}
	page := api.page(t, "containers/cntr_new")
	for _, want := range []string{"Restored from", `<a href="/console/containers/cntr_old/snapshots">before &lt;the&gt; storm</a>`,
		">data-science</a>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	w := httptest.NewRecorder()
	v, err := New(api, slog.New(slog.DiscardHandler)).visit(w, httptest.NewRequest(http.MethodPost, "/console/snapshots/snap_1", nil))
	if err != nil {
		t.Fatal(err)
	}
	if idle, err := idleOf(v, "snap_1"); err != nil || idle == nil || idle.Minutes != 90 {
		t.Errorf("got %v, %v, want the idle time of the container that the snapshot is of", idle, err)
	}
	delete(api.answers, "/v1/containers/cntr_old")
	if idle, err := idleOf(v, "snap_1"); err != nil || idle != nil {
		t.Errorf("got %v, %v without the container, want the server's default", idle, err)
	}
}
