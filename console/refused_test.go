package console

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestRefused: each refused connection has its host, reason, command and container, as text; repetitions are
// one row, and a container that was deleted has no link.
func TestRefused(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	entry := func(seq int, container, host, reason string) map[string]any {
		return map[string]any{"seq": seq, "time": at, "action": "egress.refused", "host": host, "port": 443, "reason": reason,
			"container": container}
	}
	const hostile = "evil.example<img src=x>"
	api := &stubAPI{answers: map[string]any{
		"/v1/refused_connections": map[string]any{"has_more": true, "last_id": "4", "data": []any{
			entry(9, "cntr_1", hostile, "not <allowed>"), entry(8, "cntr_1", hostile, "not <allowed>"),
			entry(7, "cntr_gone", "b.example", "private")}},
		"/v1/containers/cntr_1": berth.Container{ID: "cntr_1", Name: "box <b>", Status: berth.ContainerRunning},
		"/v1/containers/cntr_1/logs": listed(berth.ContainerLog{Command: "curl <evil>", ResponseID: "resp_1",
			StartedAtMS: at.UnixMilli() - 500, DurationMS: 1000}),
		"/v1/responses": listed(), "/v1/templates": listed(),
	}}
	page := api.page(t, "refused")
	if rows := strings.Count(page, "<tr>"); rows != 3 { // with the heading
		t.Errorf("got %d rows", rows)
	}
	for _, want := range []string{"evil.example&lt;img src=x&gt;:443", "not &lt;allowed&gt;", `/console/responses/resp_1"><code>curl &lt;evil&gt;`,
		`/console/containers/cntr_1/network">box &lt;b&gt;</a>`, ">2</td>", "deleted", `/console/refused?after=4"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(page, "<img src=x") || strings.Contains(page, `containers/cntr_gone`) {
		t.Errorf("got %s", page)
	}
}
