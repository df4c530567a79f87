package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/disktest"
)

const helloUnstored = `{"model":"scripted","input":"hello","store":false}`

// attempt makes a request, which may get no answer.
func (p *planted) attempt(ctx context.Context, method, path, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+"/v1"+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// A slowLoad is a number of requests that need the disk, and what came of them.
type slowLoad struct {
	p    *planted
	done sync.WaitGroup

	mu     sync.Mutex
	stored map[string]string // a stored object's path: its input
	failed int
}

// begin sends n requests that create responses and as many that create conversations, at the same time.
// With lossy, they may get no answer; otherwise each is answered, with an object or a reason.
func (p *planted) begin(name string, n int, lossy bool) *slowLoad {
	l := &slowLoad{p: p, stored: map[string]string{}}
	for i := range n {
		word := fmt.Sprintf("%s-%d", name, i)
		for path, body := range map[string]string{
			"/responses":     fmt.Sprintf(`{"model":"scripted","input":%q}`, word),
			"/conversations": fmt.Sprintf(`{"metadata":{"word":%q}}`, word),
		} {
			l.done.Go(func() {
				a, err := p.attempt(p.t.Context(), "POST", path, body)
				var made struct{ ID, Status string }
				l.mu.Lock()
				defer l.mu.Unlock()
				switch {
				case err != nil:
					l.failed++
					if !lossy {
						p.t.Errorf("POST %s: %v", path, err)
					}
				case a.status != http.StatusOK:
					l.failed++
					if a.status < 500 || a.code() == "" {
						p.t.Errorf("POST %s: got %d without a reason: %.300s", path, a.status, a.text)
					}
				case json.Unmarshal([]byte(a.text), &made) != nil || made.ID == "":
					p.t.Errorf("POST %s: no id: %.300s", path, a.text)
				default:
					l.stored[path+"/"+made.ID] = word
				}
			})
		}
	}
	return l
}

// count returns how many requests were answered with an object, and how many failed.
func (l *slowLoad) count() (stored, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.stored), l.failed
}

// check sees that what was answered as stored is there.
func (l *slowLoad) check(when string) {
	l.p.t.Helper()
	for path, word := range l.stored {
		if strings.HasPrefix(path, "/responses/") {
			if got := l.p.ask("GET", path, ""); got.status != http.StatusOK || !strings.Contains(got.text,
				`"completed"`) {
				l.p.t.Errorf("%s %s: got %d %.300s", path, when, got.status, got.text)
			}
			path += "/input_items"
		}
		if got := l.p.ask("GET", path, ""); got.status != http.StatusOK || !strings.Contains(got.text, `"`+word+`"`) {
			l.p.t.Errorf("%s %s: got %d %.300s, want %s in it", path, when, got.status, got.text, word)
		}
	}
}

// TestSlowDisk runs a server whose disk takes 16 KiB a second, then one that does not answer,
// and kills the server while they wait. Requests that store something wait, or fail with a reason.
// Those that store nothing are served while the others wait. Nothing that was answered as
// stored is lost, and service returns without help.
func TestSlowDisk(t *testing.T) {
	p, dir := onVolume(t, 512<<20, "store: {synchronous: full}") // each commit waits for the disk
	container := p.create("/containers", `{"name":"works"}`)
	p.shell(container, "echo before >/mnt/data/file")
	before := p.begin("before", 2, false)
	before.done.Wait()
	if stored, failed := before.count(); failed > 0 || stored != 4 {
		t.Fatalf("%d requests failed on a healthy disk", failed)
	}

	fast := disktest.Slow(t, dir, p.cmd.Process.Pid, 16<<10)
	began := time.Now()
	slow := p.begin("slow", 12, false)
	for range 10 {
		if a := p.ask("POST", "/responses", helloUnstored); a.status != http.StatusOK {
			t.Errorf("an unstored response on a slow disk: got %d %.300s", a.status, a.text)
		}
	}
	unstoredTook := time.Since(began)
	if stored, failed := slow.count(); stored+failed == 24 {
		t.Errorf("all requests were answered in %v: the disk is not slow, or unstored responses wait for it",
			unstoredTook)
	}
	slow.done.Wait()
	stored, failed := slow.count()
	t.Logf("a slow disk: %d requests stored and %d failed in %v; ten unstored ones took %v", stored, failed,
		time.Since(began), unstoredTook)
	if stored == 0 {
		t.Error("a slow disk stored nothing")
	}
	fast()
	p.waitUntil("the server serves", func() bool { return p.ask("POST", "/responses", hello).status == http.StatusOK })
	slow.check("after a slow disk")

	thaw := disktest.Stall(t, dir)
	stalled := p.begin("stalled", 6, false)
	began = time.Now()
	for range 10 { // each is answered while the disk answers nothing
		if a := p.ask("POST", "/responses", helloUnstored); a.status != http.StatusOK {
			t.Errorf("an unstored response on a stalled disk: got %d %.300s", a.status, a.text)
		}
	}
	if !p.healthy() {
		t.Error("the server is not healthy on a stalled disk")
	}
	if a := p.ask("GET", "/containers/"+container, ""); a.status != http.StatusOK {
		t.Errorf("a container on a stalled disk: got %d %.300s", a.status, a.text)
	}
	t.Logf("a stalled disk: ten unstored responses took %v", time.Since(began))
	if stored, _ := stalled.count(); stored > 0 {
		t.Errorf("%d requests were answered as stored while the disk took nothing", stored)
	}
	thaw()
	stalled.done.Wait()
	stored, failed = stalled.count()
	t.Logf("a stalled disk: %d requests stored and %d failed", stored, failed)
	p.waitUntil("the server serves", func() bool { return p.ask("POST", "/responses", hello).status == http.StatusOK })
	p.waitUntil("the server says that it is ready", p.ready)
	stalled.check("after a stalled disk")

	// A server that is killed while its disk stalls.
	thaw = disktest.Stall(t, dir)
	lost := p.begin("lost", 6, true)
	for range 3 {
		p.ask("POST", "/responses", helloUnstored)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	thaw()
	_ = p.cmd.Wait()
	lost.done.Wait()
	p.start()
	for _, l := range []*slowLoad{before, slow, stalled, lost} {
		l.check("after the server was killed")
	}
	if got := p.shell(container, "cat /mnt/data/file"); got != "before\n" {
		t.Errorf("the container's file: got %q", got)
	}
	p.call("DELETE", "/containers/"+container, "")
	if out, errs, err := p.berth("audit", "verify", "--state", p.state); err != nil {
		t.Errorf("audit verify: %v: %s%s", err, out, errs)
	}
}
