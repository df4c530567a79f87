package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container/build"
)

// brief is a build that ends by itself. The house has no user "user" with a home, in which RUN would run.
const brief = `{"fromTemplate":"base","steps":[{"type":"USER","args":["root"]}]}`

// endless returns a build that does not end before the test. The house does not isolate commands, so this one must
// not outlive the test.
func endless(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "test-runs")
	check(t, os.WriteFile(file, nil, 0o600))
	return `{"fromTemplate":"base","steps":[{"type":"USER","args":["root"]},{"type":"WORKDIR","args":["/"]},{"type":"RUN","args":["while [ -e ` +
		file + ` ]; do sleep 0.1; done"]}]}`
}

// withBuilds serves E2B's API with other limits of builds.
func withBuilds(t *testing.T, stop *context.CancelFunc, limits build.Limits) func(*api.Options) {
	return withSandboxOptions(t, stop, func(o *sandboxParts) { o.building.Limits = limits })
}

// A buildTest is a build that was started.
type buildTest struct {
	h               *house
	key             string
	template, build string
}

// startBuild announces and starts a build.
func (h *house) startBuild(key, name, body string) buildTest {
	h.t.Helper()
	b := buildTest{h: h, key: key}
	b.template, b.build = h.newTemplate(key, `{"name":"`+name+`"}`)
	if status, text := h.sandboxCall("POST", "/v2/templates/"+b.template+"/builds/"+b.build, body,
		map[string]string{"X-API-Key": key}); status != http.StatusAccepted {
		h.t.Fatalf("start: got %d %s", status, text)
	}
	return b
}

// A buildState is what clients see of a build.
type buildState struct {
	Status string   `json:"status"`
	Logs   []string `json:"logs"`
	Reason struct {
		Message string `json:"message"`
		Step    string `json:"step"`
	} `json:"reason"`
}

// state returns the state of a build.
func (b buildTest) state() (s buildState) {
	b.h.t.Helper()
	status, text := b.h.sandboxCall("GET", "/templates/"+b.template+"/builds/"+b.build+"/status", "",
		map[string]string{"X-API-Key": b.key})
	if err := json.Unmarshal([]byte(text), &s); err != nil || status != http.StatusOK {
		b.h.t.Fatalf("status: got %d %s", status, text)
	}
	return s
}

// await returns the state of a build when it is as wanted.
func (b buildTest) await(what string, is func(buildState) bool) buildState {
	b.h.t.Helper()
	var last buildState
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = b.state(); is(last) {
			return last
		}
	}
	b.h.t.Fatalf("waited in vain until %s: the build is %+v", what, last)
	return last
}

func (b buildTest) runs() buildState {
	b.h.t.Helper()
	return b.await("a step runs", func(s buildState) bool {
		return strings.Contains(strings.Join(s.Logs, "\n"), "[builder 3/3]")
	})
}

func (b buildTest) ends() buildState {
	b.h.t.Helper()
	return b.await("it ends", func(s buildState) bool { return s.Status == "ready" || s.Status == "error" })
}

// noContainers fails unless a project has no container.
func (h *house) noContainers(key string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), "GET", h.url+"/v1/containers", nil)
	check(h.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	check(h.t, err)
	defer resp.Body.Close()
	var list struct {
		Data []struct{ ID, Name, Status string }
	}
	check(h.t, json.NewDecoder(resp.Body).Decode(&list))
	if len(list.Data) > 0 {
		h.t.Errorf("containers remain: %+v", list.Data)
	}
}

// A step of a user who does not exist fails for that reason, in the words of E2B.
func TestE2BBuildUnknownUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("skipped: a guest that is not root has one user")
	}
	var stop context.CancelFunc
	h := newHouse(t, withBuilds(t, &stop, build.Limits{Time: time.Minute}))
	h.key("sk-mine", "proj_mine")
	b := h.startBuild("sk-mine", "app", `{"fromTemplate":"base","steps":[{"type":"RUN","args":["true","no-such-user"]}]}`)
	got := b.ends()
	if want := "failed to run command 'true': command failed: unauthenticated: invalid username: 'no-such-user'"; got.Status != "error" ||
		got.Reason.Message != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// A build that takes too long fails, and its container is deleted.
func TestE2BBuildTime(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withBuilds(t, &stop, build.Limits{Time: time.Second}))
	h.key("sk-mine", "proj_mine")
	s := h.startBuild("sk-mine", "slow", endless(t)).ends()
	if s.Status != "error" || s.Reason.Message != "The build took longer than 1s, the limit of this server." {
		t.Errorf("got %+v", s)
	}
	h.noContainers("sk-mine")
}

// The builds of one project leave room for those of another.
func TestE2BBuildFairness(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withBuilds(t, &stop, build.Limits{AtOnce: 3, Started: 20}))
	h.key("sk-greedy", "proj_greedy")
	h.key("sk-mine", "proj_mine")
	var greedy []buildTest
	for i := range 6 {
		greedy = append(greedy, h.startBuild("sk-greedy", fmt.Sprintf("app%d", i), endless(t)))
	}
	greedy[0].runs()
	greedy[1].runs()
	mine := h.startBuild("sk-mine", "app", brief)
	if s := mine.ends(); s.Status != "ready" {
		t.Errorf("got %+v", s)
	}
	for i, b := range greedy {
		if s := b.state(); s.Status != "building" {
			t.Errorf("build %d: got %+v", i, s)
		}
	}
}

// A project may have some builds that wait, and no more.
func TestE2BBuildsWaiting(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withBuilds(t, &stop, build.Limits{AtOnce: 3, Started: 20}))
	h.key("sk-mine", "proj_mine")
	for i := range 20 {
		h.startBuild("sk-mine", fmt.Sprintf("app%d", i), endless(t))
	}
	template, build := h.newTemplate("sk-mine", `{"name":"more"}`)
	status, text := h.sandboxCall("POST", "/v2/templates/"+template+"/builds/"+build, endless(t),
		map[string]string{"X-API-Key": "sk-mine"})
	if status != http.StatusTooManyRequests || !strings.Contains(text, "20 builds") {
		t.Errorf("got %d %s", status, text)
	}
}

// Deleting a template cancels its builds: those that run and those that wait.
func TestE2BBuildCancel(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withBuilds(t, &stop, build.Limits{AtOnce: 3, Started: 20}))
	h.key("sk-mine", "proj_mine")
	var all []buildTest
	for i := range 4 {
		all = append(all, h.startBuild("sk-mine", fmt.Sprintf("app%d", i), endless(t)))
	}
	all[0].runs()
	all[1].runs()
	for _, b := range all[1:] {
		if status, text := h.sandboxCall("DELETE", "/templates/"+b.template, "",
			map[string]string{"X-API-Key": "sk-mine"}); status != http.StatusNoContent {
			t.Fatalf("delete: got %d %s", status, text)
		}
		if status, text := h.sandboxCall("GET", "/templates/"+b.template+"/builds/"+b.build+"/status", "",
			map[string]string{"X-API-Key": "sk-mine"}); status != http.StatusNotFound {
			t.Errorf("its status: got %d %s", status, text)
		}
	}
	if s := all[0].state(); s.Status != "building" {
		t.Errorf("the build of another template: got %+v", s)
	}
	if s := h.startBuild("sk-mine", "app", brief).ends(); s.Status != "ready" {
		t.Errorf("a build after them: got %+v", s)
	}
	if status, text := h.sandboxCall("DELETE", "/templates/"+all[0].template, "",
		map[string]string{"X-API-Key": "sk-mine"}); status != http.StatusNoContent {
		t.Fatalf("delete: got %d %s", status, text)
	}
	h.noContainers("sk-mine")
}

// besides is the placement of a server with others.
type besides struct {
	cluster.Solo
	alive func(server string) bool
}

func (besides) Alone() bool { return false }

func (b besides) Alive(_ context.Context, server string) (bool, error) { return b.alive(server), nil }

// A build on which no server works any more has failed: at the next start of its server, or when the lease of that
// one is gone. A server that was only silent gives the build up.
func TestE2BBuildInterrupted(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{"the same server": "a", "another server": "b"} {
		t.Run(name, func(t *testing.T) {
			var stop context.CancelFunc
			var parts *sandboxParts
			h := newHouse(t, withSandboxOptions(t, &stop, func(o *sandboxParts) { o.building.Server, parts = "a", o }))
			h.key("sk-mine", "proj_mine")
			b := h.startBuild("sk-mine", "app", endless(t))
			b.runs()

			opts := parts.building
			opts.Server = second
			found := make(chan struct{}, 100)
			var dead atomic.Bool
			opts.Placement = besides{alive: func(server string) bool {
				defer func() { found <- struct{}{} }()
				return server != "a" || !dead.Load()
			}}
			run := func() (end func()) {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); build.New(opts).Run(ctx) }()
				return func() { cancel(); <-ended }
			}
			if second != "a" {
				end := run()
				<-found
				end()
				if s := b.state(); s.Status != "building" {
					t.Fatalf("while its server works: got %+v", s)
				}
				dead.Store(true)
			}
			end := run()
			defer end()
			if s := b.ends(); s.Status != "error" ||
				s.Reason.Message != "The server stopped while the template was being built. Build it again." {
				t.Errorf("got %+v", s)
			}
			h.noContainers("sk-mine")
			stop()
			if s := b.state(); s.Status != "error" ||
				s.Reason.Message != "The server stopped while the template was being built. Build it again." {
				t.Errorf("after the end of its server: got %+v", s)
			}
		})
	}
}
