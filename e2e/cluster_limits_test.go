package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestClusterLimits reaches the limits of a project on one server after the other: they hold for
// all servers together, also after one that was killed comes back.
func TestClusterLimits(t *testing.T) {
	f := newFleet(t, "1m", "limits: {default: {responses: 2, containers: 3, requests_per_minute: 40}}\n")
	ctx := within(t, 3*time.Minute)
	refused := func(what string, status int, err error, says string) {
		t.Helper()
		if status != http.StatusTooManyRequests || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: status %d, %v", what, status, err)
		}
	}
	var running []memberAnswer
	for _, s := range f.servers[:2] {
		var r memberAnswer
		if _, err := call(ctx, "POST", s.url+"/v1/responses", "", task("sleep 600"), &r); err != nil {
			t.Fatal(err)
		}
		running = append(running, r)
	}
	for _, s := range f.servers {
		status, err := call(ctx, "POST", s.url+"/v1/responses", "", task("sleep 600"), nil)
		refused("a third response of two", status, err, "responses in progress: Limit 2, Used 2, Requested 1")
	}
	// Both have a container.
	third := map[string]any{"name": "third"}
	var created struct{ ID string }
	if _, err := call(ctx, "POST", f.servers[2].url+"/v1/containers", "", third, &created); err != nil {
		t.Fatal(err)
	}
	for _, s := range f.servers {
		status, err := call(ctx, "POST", s.url+"/v1/containers", "", third, nil)
		refused("a fourth container of three", status, err, "on containers: Limit 3, Used 3, Requested 1")
	}
	// A killed server still has its response and its container when it is back.
	f.servers[0].kill()
	f.servers[0].start()
	f.servers[0].waitUntil("the killed server has its response again", func() bool {
		var r memberAnswer
		_, err := call(ctx, "GET", f.servers[1].url+"/v1/containers/"+running[0].container(), "", nil, &r)
		return err == nil
	})
	for _, s := range f.servers {
		status, err := call(ctx, "POST", s.url+"/v1/containers", "", third, nil)
		refused("a fourth container after a crash", status, err, "on containers: Limit 3, Used 3, Requested 1")
	}
	// What ends on one server can be started on another one immediately.
	if _, err := call(ctx, "DELETE", f.servers[0].url+"/v1/containers/"+created.ID, "", nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := call(ctx, "POST", f.servers[1].url+"/v1/containers", "", third, nil); err != nil {
		t.Errorf("a container in place of a deleted one: %v", err)
	}
	if _, err := call(ctx, "POST", f.servers[2].url+"/v1/responses/"+running[1].ID+"/cancel", "", nil,
		nil); err != nil {
		t.Error(err)
	}
	once := map[string]any{"model": "scripted", "input": "hello"}
	if _, err := call(ctx, "POST", f.servers[0].url+"/v1/responses", "", once, nil); err != nil {
		t.Errorf("a response in place of a cancelled one: %v", err)
	}
	// The rate counts for all servers: 40 requests are fewer than three times 40.
	var limited int
	for i := range 60 {
		status, err := call(ctx, "POST", f.servers[i%3].url+"/v1/responses", "", once, nil)
		if status == http.StatusTooManyRequests {
			refused("a request beyond the rate", status, err, "requests per min (RPM): Limit 40")
			limited++
		}
	}
	if limited < 15 {
		t.Errorf("%d of 60 requests were refused; the limit of all servers is 40 in a minute", limited)
	}
}
