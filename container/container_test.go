package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

func TestCreate(t *testing.T) {
	h := newHarness(t)
	c := h.create(CreateRequest{Name: "mine", MemoryLimit: "4g", Env: []string{"A=1"},
		ExpiresAfter: &berth.ExpiresAfter{Anchor: "last_active_at", Minutes: 5}})
	want := `{"id":"` + string(c.ID) + `","object":"container","created_at":1800000000,"status":"running",` +
		`"expires_after":{"anchor":"last_active_at","minutes":5},"last_active_at":1800000000,"memory_limit":"4g","name":"mine",` +
		`"network_policy":{"type":"disabled"},"berth":{"isolation":"none","template":"sha256:1","starting":true}}`
	if got, _ := json.Marshal(c); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := h.sh(c.ID, "echo $((6*7+A)); cd /; export A=b"); got != "43\n" {
		t.Errorf("the first command printed %q", got)
	}
	if got := h.sh(c.ID, "echo $PWD $A"); got != "/ b\n" {
		t.Errorf("the second command printed %q: state was lost", got)
	}
	c, err := h.k.Get(t.Context(), mine, c.ID)
	if err != nil || c.Berth.Starting || c.Status != berth.ContainerRunning {
		t.Errorf("got %+v, %v; want it running and no longer starting", c, err)
	}
	spec := h.driver.box(string(c.ID)).spec
	wantSpec := sandbox.Spec{ID: string(c.ID), Template: sandbox.Template{Digest: "sha256:1", Path: "/templates/1"},
		Limits: sandbox.Limits{Memory: 4 << 30}.WithDefaults()}
	if diff := cmp.Diff(wantSpec, spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func allowlist(domains ...string) CreateRequest {
	return CreateRequest{NetworkPolicy: &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: domains}}
}

func secret(s berth.DomainSecret) CreateRequest {
	req := allowlist("a.example")
	req.NetworkPolicy.DomainSecrets = []berth.DomainSecret{s}
	return req
}

func TestCreateRefused(t *testing.T) {
	h := newHarness(t)
	minutes := func(anchor string, n int) *berth.ExpiresAfter {
		return &berth.ExpiresAfter{Anchor: anchor, Minutes: n}
	}
	for name, tc := range map[string]struct {
		req   CreateRequest
		code  berth.Code
		param string
	}{
		"memory": {CreateRequest{MemoryLimit: "2g"}, berth.CodeInvalid, "memory_limit"},
		"anchor": {CreateRequest{ExpiresAfter: minutes("created_at", 5)}, berth.CodeInvalid,
			"expires_after.anchor"},
		"no time": {CreateRequest{ExpiresAfter: minutes("last_active_at", 0)}, berth.CodeInvalid,
			"expires_after.minutes"},
		"long time": {CreateRequest{ExpiresAfter: minutes("last_active_at", 10_081)}, berth.CodeInvalid,
			"expires_after.minutes"},
		"network": {CreateRequest{NetworkPolicy: &berth.NetworkPolicy{Type: "bridge"}}, berth.CodeInvalid,
			"network_policy.type"},
		"domains": {allowlist("a.example", "10.0.0.1"), berth.CodeInvalid,
			"network_policy.allowed_domains[1]"},
		"no domain": {allowlist(), berth.CodeInvalid, "network_policy.allowed_domains"},
		"secret elsewhere": {secret(berth.DomainSecret{Domain: "b.example", Name: "KEY", Value: "value"}),
			berth.CodeInvalid, "network_policy.domain_secrets[0].domain"},
		"secret's name": {secret(berth.DomainSecret{Domain: "a.example", Name: "A=B", Value: "value"}),
			berth.CodeInvalid, "network_policy.domain_secrets[0].name"},
		"secret's value": {secret(berth.DomainSecret{Domain: "a.example", Name: "KEY", Value: "abc"}),
			berth.CodeInvalid, "network_policy.domain_secrets[0].value"},
		"secret's length": {secret(berth.DomainSecret{Domain: "a.example", Name: "KEY", Value: strings.Repeat("x",
			maxSecret+1)}), berth.CodeInvalid, "network_policy.domain_secrets[0].value"},
		"file": {CreateRequest{FileIDs: []berth.FileID{"file-none"}}, berth.CodeNotFound, "file_ids[0]"},
		"env":  {CreateRequest{Env: []string{"A=1", "=2"}}, berth.CodeInvalid, "env"},
	} {
		_, err := h.k.Create(t.Context(), byMe, tc.req)
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != tc.code || e.Param != tc.param {
			t.Errorf("%s: got %v, want %s about %s", name, err, tc.code, tc.param)
		}
	}
	if list, _, _ := h.k.List(t.Context(), mine, "", store.Page{Limit: 10}); len(list) > 0 {
		t.Errorf("refused requests left %d containers", len(list))
	}
}

func TestNoTemplate(t *testing.T) {
	h := newHarness(t)
	h.k.opts.Template = func(string) (Template, error) { return Template{}, errHost }
	_, err := h.k.Create(t.Context(), byMe, CreateRequest{})
	wantError(t, err, berth.CodeUnavailable, "", "template")
	if e, _ := errors.AsType[*berth.Error](err); strings.Contains(e.Message, "secret") || !errors.Is(err, errHost) {
		t.Errorf("got %v, want the cause in the log only", err)
	}
}

// A name that a request asks to be unique is refused while another running container has it as
// its unique name. Names of other containers may repeat.
func TestUniqueName(t *testing.T) {
	h := newHarness(t)
	create := func(caller berth.Caller, unique bool) (*berth.Container, error) {
		return h.k.Create(t.Context(), caller, CreateRequest{Name: "box", UniqueName: unique})
	}
	first, err := create(byMe, true)
	if err != nil || !first.Berth.UniqueName {
		t.Fatalf("the first: %+v, %v", first, err)
	}
	for range 2 {
		if c, err := create(byMe, false); err != nil || c.Berth.UniqueName {
			t.Errorf("a repeated name: %+v, %v", c, err)
		}
	}
	if _, err := create(berth.Caller{Project: theirs}, true); err != nil {
		t.Errorf("another project's: %v", err)
	}
	_, err = create(byMe, true)
	wantError(t, err, berth.CodeConflict, "", string(first.ID))
	_, err = h.k.Fork(t.Context(), byMe, first.ID, ForkRequest{UniqueName: true})
	wantError(t, err, berth.CodeConflict, "", string(first.ID))
	if err := h.k.Delete(t.Context(), mine, first.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := create(byMe, true); err != nil {
		t.Errorf("after the first was deleted: %v", err)
	}
}

// Nothing is left of a container if saving its row fails, whether the row was written or not.
func TestCreateNotSaved(t *testing.T) {
	for _, fault := range []error{errHost, errSavedAnyway} {
		t.Run(fault.Error(), func(t *testing.T) {
			h := newHarness(t)
			h.store.failing(func(op string) error {
				if op == "create" {
					return fault
				}
				return nil
			})
			if _, err := h.k.Create(t.Context(), byMe, CreateRequest{}); !errors.Is(err, fault) {
				t.Errorf("got %v, want %v", err, fault)
			}
			if recs, err := h.store.RunningContainers(t.Context()); err != nil || len(recs) > 0 ||
				len(h.k.index.all()) > 0 || h.driver.count("create") > 0 {
				t.Errorf("left behind: %d rows, %d instances, %d sandboxes", len(recs), len(h.k.index.all()),
					h.driver.count("create"))
			}
		})
	}
}

func TestFirstUseWaits(t *testing.T) {
	h := newHarness(t)
	gate := make(chan struct{})
	h.driver.fail = func(ctx context.Context, op, _ string) error {
		if op == "start" {
			<-gate
		}
		return nil
	}
	c := h.create(CreateRequest{}) // before the start ends
	impatient, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := h.trySh(impatient, c.ID, "call_1", "echo no")
		gone <- err
	}()
	patient := make(chan string)
	go func() { patient <- h.sh(c.ID, "echo yes") }()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that stopped waiting got %v", err)
	}
	close(gate)
	if got := <-patient; got != "yes\n" {
		t.Errorf("a caller that waited got %q", got)
	}
}

// A container whose start meets a full volume starts when there is room, with its files.
func TestStartWaitsForRoom(t *testing.T) {
	for _, place := range []string{"driver create", "driver start", "driver by a program", "store update",
		"store file"} {
		t.Run(place, func(t *testing.T) {
			h := newHarness(t)
			h.uploads["file-1"] = upload{"a.txt", "content"}
			var mu sync.Mutex
			left := 2        // attempts that fail
			lacking := false // room, at the next check
			full := func(at string, err error) error {
				mu.Lock()
				defer mu.Unlock()
				if at != place || left == 0 {
					return nil
				}
				left--
				lacking = true
				return err
			}
			h.k.opts.Disk.Room = func() error {
				mu.Lock()
				defer mu.Unlock()
				if lacking {
					lacking = false
					return errHost
				}
				return nil
			}
			h.driver.fail = func(_ context.Context, op, _ string) error {
				if err := full("driver "+op, fmt.Errorf("write the specification: %w", unix.ENOSPC)); err != nil ||
					op != "start" {
					return err
				}
				return full("driver by a program", errHost)
			}
			h.store.failing(func(op string) error { return full("store "+op, store.ErrStorage) })
			c := h.create(CreateRequest{FileIDs: []berth.FileID{"file-1"}})
			if got := h.sh(c.ID, "cat a.txt"); got != "content" {
				t.Errorf("got %q, want the file's content", got)
			}
			if left > 0 || !strings.Contains(h.log.String(), "volume is full") {
				t.Errorf("%d attempts that fail are left, the log is\n%s", left, h.log)
			}
			if got := h.get(c.ID); got.Status != berth.ContainerRunning || got.Berth.Starting {
				t.Errorf("got %s, starting %v", got.Status, got.Berth.Starting)
			}
		})
	}
}

// A container that waits for room can be deleted.
func TestDeleteWhileStartWaitsForRoom(t *testing.T) {
	h := newHarness(t)
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "start" {
			return unix.ENOSPC
		}
		return nil
	}
	c := h.create(CreateRequest{})
	if err := h.k.Delete(t.Context(), mine, c.ID); err != nil {
		t.Fatal(err)
	}
	h.driver.until(0)
}

func TestStartFails(t *testing.T) {
	for op, words := range map[string]string{"create": "could not be created", "start": "did not start",
		"dial": "guest did not answer"} {
		t.Run(op, func(t *testing.T) {
			h := newHarness(t)
			h.driver.fail = func(_ context.Context, o, _ string) error {
				if o == op {
					return errHost
				}
				return nil
			}
			c := h.create(CreateRequest{})
			_, err := h.trySh(t.Context(), c.ID, "call_1", "true")
			wantError(t, err, berth.CodeUnavailable, "container_start_failed", string(c.ID), words)
			if e, _ := errors.AsType[*berth.Error](err); strings.Contains(e.Message, "secret") {
				t.Errorf("the client gets %q", e.Message)
			}
			if !strings.Contains(h.log.String(), errHost.Error()) {
				t.Error("the log lacks the cause")
			}
			h.driver.until(0)
			if got := h.get(c.ID); got.Status != berth.ContainerExpired || got.Berth.Reason != "host" ||
				got.Berth.Starting {
				t.Errorf("got %s, reason %q, starting %v", got.Status, got.Berth.Reason, got.Berth.Starting)
			}
			_, err = h.trySh(t.Context(), c.ID, "call_1", "true")
			if berth.ErrorCode(err) != berth.CodeInvalid && berth.ErrorCode(err) != berth.CodeUnavailable {
				t.Errorf("later use: got %v", err)
			}
		})
	}
}

// All of many concurrent creations succeed, and the number of concurrent starts is bounded.
func TestHundredAtOnce(t *testing.T) {
	h := newHarness(t)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			c, err := h.k.Create(t.Context(), byMe, CreateRequest{Name: fmt.Sprint(i)})
			if err != nil {
				t.Errorf("create %d: %v", i, err)
				return
			}
			client, release, err := h.k.access.Guest(t.Context(), berth.Caller{Project: mine}, c.ID)
			if err != nil {
				t.Errorf("use %d: %v", i, err)
				return
			}
			defer release()
			if err := client.Ping(t.Context()); err != nil {
				t.Errorf("ping %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if h.driver.most > h.k.opts.Bounds.Starts {
		t.Errorf("%d starts ran at once, want at most %d", h.driver.most, h.k.opts.Bounds.Starts)
	}
}

func TestMaxContainers(t *testing.T) {
	h := newHarness(t)
	h.k.opts.Bounds.Containers = 2
	first := h.ready()
	h.ready()
	_, err := h.k.Create(t.Context(), byMe, CreateRequest{})
	wantError(t, err, berth.CodeRateLimited, "", "2 containers are running")
	if err := h.k.Delete(t.Context(), mine, first); err != nil {
		t.Fatal(err)
	}
	h.ready()
}

func TestProjectsApart(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	f, err := h.k.files.Put(t.Context(), mine, id, "a", strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, try := range map[string]func(berth.ProjectID, berth.ContainerID) error{
		"get":    func(p berth.ProjectID, id berth.ContainerID) error { _, err := h.k.Get(ctx, p, id); return err },
		"delete": func(p berth.ProjectID, id berth.ContainerID) error { return h.k.Delete(ctx, p, id) },
		"shell": func(p berth.ProjectID, id berth.ContainerID) (err error) {
			for _, err = range h.k.access.Shell(berth.Caller{Project: p}, id).Shell(ctx, guest.ShellCall{CallID: "c",
				Commands: []string{"true"}}) {
			}
			return err
		},
		"cancel": func(p berth.ProjectID, id berth.ContainerID) error {
			return h.k.access.Shell(berth.Caller{Project: p}, id).Cancel(ctx, "c")
		},
		"guest": func(p berth.ProjectID, id berth.ContainerID) error {
			_, _, err := h.k.access.Guest(ctx, berth.Caller{Project: p}, id)
			return err
		},
		"files": func(p berth.ProjectID, id berth.ContainerID) error {
			_, _, err := h.k.files.List(ctx, p, id, store.Page{Limit: 1})
			return err
		},
		"file": func(p berth.ProjectID, id berth.ContainerID) error {
			_, err := h.k.files.Get(ctx, p, id, f.ID)
			return err
		},
		"put": func(p berth.ProjectID, id berth.ContainerID) error {
			_, err := h.k.files.Put(ctx, p, id, "b", strings.NewReader("b"))
			return err
		},
		"remove": func(p berth.ProjectID, id berth.ContainerID) error { return h.k.files.Delete(ctx, p, id, f.ID) },
		"provide": func(p berth.ProjectID, id berth.ContainerID) error {
			_, err := h.k.provider.Provide(ctx, berth.Caller{Project: p},
				berth.ShellToolEnvironment{Type: berth.EnvironmentReference, ContainerID: id}, "")
			return err
		},
	} {
		wantError(t, try(theirs, id), berth.CodeNotFound, "", "Container with id '"+string(id)+"' not found.")
		if err := try(mine, "cntr_none"); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("%s of an unknown container: got %v", name, err)
		}
	}
	if list, _, err := h.k.List(ctx, theirs, "", store.Page{Limit: 10}); err != nil || len(list) > 0 {
		t.Errorf("another project lists %d containers, %v", len(list), err)
	}
	if h.sh(id, "cat a") != "a" {
		t.Error("another project changed the container")
	}
}

func TestList(t *testing.T) {
	h := newHarness(t)
	a := h.create(CreateRequest{Name: "a"}).ID
	h.pass(1e9)
	b := h.create(CreateRequest{Name: "b"}).ID
	list, more, err := h.k.List(t.Context(), mine, "", store.Page{Limit: 1})
	if err != nil || !more || len(list) != 1 || list[0].ID != b {
		t.Errorf("first page: got %v, %v, %v", list, more, err)
	}
	list, more, err = h.k.List(t.Context(), mine, "a", store.Page{Limit: 10})
	if err != nil || more || len(list) != 1 || list[0].ID != a {
		t.Errorf("by name: got %v, %v, %v", list, more, err)
	}
}

func TestProvide(t *testing.T) {
	h := newHarness(t)
	h.uploads["file-1"] = upload{"data.csv", "1,2"}
	ctx := t.Context()
	auto := berth.ShellToolEnvironment{Type: berth.EnvironmentAuto, FileIDs: []berth.FileID{"file-1"}}
	first, err := h.k.provider.Provide(ctx, byMe, auto, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := h.sh(first, "cat data.csv; echo x >>data.csv"); got != "1,2" {
		t.Errorf("got %q", got)
	}
	if again, err := h.k.provider.Provide(ctx, byMe, auto, first); err != nil || again != first {
		t.Errorf("the chain's container: got %s, %v, want %s", again, err, first)
	}
	if got := h.sh(first, "cat data.csv; ls | wc -l"); got != "1,2x\n1\n" {
		t.Errorf("an existing file was copied in again: %q", got)
	}
	byRef := berth.ShellToolEnvironment{Type: berth.EnvironmentReference, ContainerID: first}
	if same, err := h.k.provider.Provide(ctx, byMe, byRef, ""); err != nil || same != first {
		t.Errorf("by reference: got %s, %v", same, err)
	}
	h.driver.die(string(first), sandbox.ReasonOOM)
	if _, err := h.trySh(ctx, first, "c", "true"); err == nil {
		t.Fatal("a dead container ran a command")
	}
	_, err = h.k.provider.Provide(ctx, byMe, byRef, first)
	wantExpired(t, err, first, "memory limit of 1g")
	second, err := h.k.provider.Provide(ctx, byMe, auto, first)
	if err != nil || second == first {
		t.Errorf("after the death: got %s, %v, want a new container", second, err)
	}
	if got := h.sh(second, "cat data.csv"); got != "1,2" {
		t.Errorf("got %q", got)
	}
	bad := auto
	bad.MemoryLimit = "3g"
	if _, err = h.k.provider.Provide(ctx, byMe, bad, second); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("an invalid request for the chain's container: got %v", err)
	}
}
