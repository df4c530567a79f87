package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestClusterPaused stops a server's process until another one has removed it, ended its container
// and finished its response. When it continues, its command has ended as well: nothing that it then
// writes is stored.
func TestClusterPaused(t *testing.T) {
	f := newFleet(t, "3s")
	ctx := within(t, 3*time.Minute)
	a, b := f.servers[0], f.servers[1]
	done := filepath.Join(t.TempDir(), "done")
	var r memberAnswer
	if _, err := call(ctx, "POST", a.url+"/v1/responses", "",
		task("echo begun >> "+f.counter+"; sleep 4; echo late > "+done), &r); err != nil {
		t.Fatal(err)
	}
	a.waitUntil("the command runs", func() bool { _, err := os.Stat(f.counter); return err == nil })
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	defer resume() // a stopped process does not end
	if last, err := follow(ctx, b.url, r.ID, nil); err != nil || last != "response.completed" {
		t.Fatalf("the response of a paused server: last event %q, %v", last, err)
	}
	b.waitUntil("the command ends in the sandbox of the paused server", func() bool {
		_, err := os.Stat(done)
		return err == nil
	})
	type answer map[string]any
	read := func(at string) (response, container answer) {
		t.Helper()
		if err := patiently(ctx, "GET", at+"/v1/responses/"+r.ID, "", nil, &response); err != nil {
			t.Fatal(err)
		}
		if err := patiently(ctx, "GET", at+"/v1/containers/"+r.container(), "", nil, &container); err != nil {
			t.Fatal(err)
		}
		return response, container
	}
	response, container := read(b.url)
	resume()
	a.waitUntil("the paused server removes the sandbox", func() bool {
		left, _ := filepath.Glob(filepath.Join(a.state, "local", "*", r.container()+"*"))
		return len(left) == 0
	})
	for i, s := range f.servers {
		later, same := read(s.url)
		if got, want := mustText(t, later), mustText(t, response); got != want {
			t.Errorf("server %d has the response\n%s\nbefore the paused one went on it was\n%s", i, got, want)
		}
		if got, want := mustText(t, same), mustText(t, container); got != want {
			t.Errorf("server %d has the container\n%s\nbefore the paused one went on it was\n%s", i, got, want)
		}
		if last, err := follow(ctx, s.url, r.ID, nil); err != nil || last != "response.completed" {
			t.Errorf("server %d: last event %q, %v", i, last, err)
		}
	}
	if n := f.lines()["begun"]; n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	// It is a member again.
	next := task("echo again")
	next["background"] = false
	if err := patiently(ctx, "POST", a.url+"/v1/responses", "", next, nil); err != nil {
		t.Errorf("a response on the server that was paused: %v", err)
	}
	f.verify()
}

func mustText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
