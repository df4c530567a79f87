package container

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress"
)

// audited adds an audit log in dir to a harness.
func audited(t *testing.T, dir string) func(*Options) {
	return func(o *Options) { o.Audit = openAudit(t, dir) }
}

func openAudit(t *testing.T, dir string) *audit.Log {
	l, err := audit.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// auditEntries returns the entries of a container in the audit log, which must verify.
func auditEntries(t *testing.T, dir string, id berth.ContainerID) []string {
	t.Helper()
	key, err := audit.PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(dir, key, ""); err != nil {
		t.Errorf("Verify: %v", err)
	}
	var got []string
	for e, err := range audit.Entries(dir, id) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(string(e.Action)+" "+e.Reason))
	}
	return got
}

// Each end is audited once, with its reason.
func TestAuditedEnds(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, audited(t, dir))
	ends := map[berth.ContainerID]string{}
	for _, tt := range []struct {
		reason string
		end    func(id berth.ContainerID)
	}{
		{"deleted", func(id berth.ContainerID) {
			if err := h.k.Delete(t.Context(), mine, id); err != nil {
				t.Errorf("Delete: %v", err)
			}
			// A deletion is acknowledged only after it is written.
			if got := auditEntries(t, dir, id); !slices.Contains(got, "container.erased files_removed") {
				t.Errorf("after Delete the log has %q", got)
			}
			if err := h.k.Delete(t.Context(), mine, id); berth.ErrorCode(err) != berth.CodeNotFound {
				t.Errorf("Delete again: %v", err)
			}
		}},
		{"oom", func(id berth.ContainerID) { h.driver.die(string(id), "oom"); h.pass(time.Minute) }},
		{"killed", func(id berth.ContainerID) { h.driver.die(string(id), "killed"); h.pass(time.Minute) }},
		{"expired", func(id berth.ContainerID) { h.pass(time.Hour) }},
	} {
		id := h.ready()
		tt.end(id)
		ends[id] = tt.reason
	}
	h.settle()
	h.crash()
	h.start()
	h.settle()
	for id, reason := range ends {
		want := []string{"container.created", "container.ended " + reason, "container.erased files_removed"}
		if diff := cmp.Diff(want, auditEntries(t, dir, id)); diff != "" {
			t.Errorf("entries of the container that ended by %s (-want +got):\n%s", reason, diff)
		}
	}
}

// A crash at any point between the write to the store and the entry in the log leaves each end
// audited once.
func TestAuditedCrash(t *testing.T) {
	for _, lost := range []string{"nothing", "all", "since creation"} {
		t.Run(lost, func(t *testing.T) {
			dir := t.TempDir()
			h := newHarness(t, func(o *Options) {
				if lost == "nothing" {
					o.Audit = openAudit(t, dir)
				}
			})
			if lost == "since creation" {
				h.k.opts.Audit = openAudit(t, dir)
			}
			gone, dead, lives := h.ready(), h.ready(), h.ready()
			if lost == "since creation" {
				h.k.opts.Audit.Close()
				h.k.opts.Audit = nil
			}
			if err := h.k.Delete(t.Context(), mine, gone); err != nil {
				t.Fatal(err)
			}
			h.crash()
			if err := h.driver.Destroy(t.Context(), string(dead)); err != nil { // as a restart of the machine does
				t.Fatal(err)
			}
			if lost == "nothing" {
				h.opts.Audit.Close()
			}
			for range 2 {
				h.opts.Audit = openAudit(t, dir)
				h.start()
				h.settle()
				h.crash()
				h.opts.Audit.Close()
			}
			want := map[berth.ContainerID][]string{
				gone:  {"container.created", "container.ended deleted", "container.erased files_removed"},
				dead:  {"container.created", "container.ended host", "container.erased files_removed"},
				lives: {"container.created"},
			}
			if lost == "all" {
				want[gone] = nil // the log has no earlier entry of it
			}
			for id, want := range want {
				if diff := cmp.Diff(want, auditEntries(t, dir, id)); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			}
			if c, err := h.k.Get(t.Context(), mine, dead); err != nil || c.Berth.Reason != "host" {
				t.Errorf("Get of the container lost with the machine: got %+v, %v", c, err)
			}
		})
	}
}

// A deletion that cannot be audited is not acknowledged.
func TestUnrecordedDeletion(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, audited(t, dir))
	id := h.ready()
	h.opts.Audit.Close()
	if err := h.k.Delete(t.Context(), mine, id); err == nil {
		t.Error("Delete with a log that fails: got no error")
	}
	h.crash()
	h.opts.Audit = openAudit(t, dir)
	h.start()
	h.settle()
	want := []string{"container.created", "container.ended deleted", "container.erased files_removed"}
	if diff := cmp.Diff(want, auditEntries(t, dir, id)); diff != "" {
		t.Errorf("log after the next start (-want +got):\n%s", diff)
	}
}

// A hostile container cannot fill the audit log without limit, nor hide from it what it sent.
func TestAuditedFlows(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, audited(t, dir))
	id := h.ready()
	s := h.k.index.lookup(mine, id)
	for i := range 5000 {
		f := egress.Flow{Target: egress.Target{Host: fmt.Sprintf("%d.evil.example", i), Port: 443},
			Reason: "the name is not allowed"}
		if i%2 == 0 {
			f.Allowed, f.Addr, f.Sent = true, netip.MustParseAddr("192.0.2.1"), 10
		}
		h.k.trail.recordFlow(s, f)
	}
	for i := range 2000 { // with an unlimited number of hosts below a name with a secret
		h.k.trail.recordFlow(s, egress.Flow{Target: egress.Target{Host: fmt.Sprintf("%d.api.example", i), Port: 443},
			Allowed: true, Secrets: []string{"TOKEN", "OTHER"}})
	}
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	var n, sent, count, secrets int64
	for e, err := range audit.Entries(dir, id) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Action {
		case audit.EgressEnded, audit.EgressRefused:
			count++
		case audit.EgressMore:
			count += e.Count
		case audit.SecretUsed:
			secrets += max(1, e.Count)
		}
		n++
		sent += e.Sent
	}
	if n > 700 || sent != 25_000 || count != 7000 || secrets != 4000 {
		t.Errorf("got %d entries of %d connections that sent %d bytes, with %d uses of secrets; want at most 700, 7000, 25000 and 4000",
			n, count, sent, secrets)
	}
}
