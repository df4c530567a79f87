package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
)

// Each terminal has an entry in the audit record. Other uses have one per key, kind and ten minutes.
func TestAttachedEntries(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, audited(t, dir))
	id := h.ready()
	ada := berth.Caller{Project: mine, Key: "user_ada", Person: "ada@example.com", Session: "s1"}
	bot := berth.Caller{Project: mine, Key: "key_bot"}
	use := func(callers ...berth.Caller) {
		t.Helper()
		for _, c := range callers {
			_, release, err := h.k.access.Guest(t.Context(), c, id)
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
	}
	use(ada, bot, ada, bot)
	_, release, err := h.k.access.Port(t.Context(), ada, id, 80)
	if err != nil {
		t.Fatal(err)
	}
	release()
	s := h.k.index.lookup(mine, id)
	for range 2 {
		h.k.trail.recordAttached(s, ada, attachedTerminal)
	}
	h.pass(attachPause)
	use(ada, ada)
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range audit.Entries(dir, id) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Action == audit.ContainerAttached {
			got = append(got, string(e.Key)+" "+e.Person+" "+e.Reason)
		}
	}
	const of = "user_ada ada@example.com "
	want := []string{of + "files", "key_bot  files", of + "port", of + "terminal", of + "terminal", of + "files"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
