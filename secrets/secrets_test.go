package secrets_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/secrets"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const value = "sk-very-secret-value"

var (
	me   = berth.Caller{Project: "proj_mine", Key: "key_mine"}
	them = berth.Caller{Project: "proj_theirs"}
)

func newService(t *testing.T) (*secrets.Service, store.Objects, *audit.Log) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	record, err := audit.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { record.Close(); db.Close() })
	return secrets.New(secrets.Options{Objects: db, Seal: seal.New([32]byte{1}), Audit: record}), db, record
}

func wantCode(t *testing.T, err error, code berth.Code) {
	t.Helper()
	if berth.ErrorCode(err) != code || strings.Contains(fmt.Sprint(err), value) {
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestLife(t *testing.T) {
	svc, db, record := newService(t)
	ctx := t.Context()
	made, err := svc.Create(ctx, me, "OpenAI-Key", secrets.Request{Value: value,
		Metadata: map[string]string{"team": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if made.Name != "openai-key" || made.Version != 1 || made.Metadata["team"] != "a" ||
		!strings.HasPrefix(string(made.ID), "sec_") {
		t.Errorf("got %+v", made)
	}
	_, err = svc.Create(ctx, me, "openai-KEY", secrets.Request{Value: value})
	wantCode(t, err, berth.CodeConflict)
	if _, err := svc.Create(ctx, them, "openai-key", secrets.Request{Value: "another project's"}); err != nil {
		t.Errorf("the same name in another project: %v", err)
	}
	for _, ref := range []string{string(made.ID), "OPENAI-key"} {
		got, err := svc.Get(ctx, me.Project, ref)
		if diff := cmp.Diff(made, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", ref, err, diff)
		}
	}
	_, err = svc.Get(ctx, them.Project, string(made.ID))
	wantCode(t, err, berth.CodeNotFound)
	o, err := db.GetObject(ctx, me.Project, store.ObjectKey{Kind: store.KindSecret, ID: "openai-key"})
	if err != nil || bytes.Contains(o.Body, []byte(value)) {
		t.Errorf("stored as %s, %v", o.Body, err)
	}

	next, err := svc.Update(ctx, me, string(made.ID), secrets.Request{Value: "the-next-value"})
	if err != nil || next.Version != 2 || next.Metadata["team"] != "a" || next.ID != made.ID {
		t.Errorf("got %+v, %v", next, err)
	}
	if got, err := svc.Value(ctx, me.Project, "OPENAI-KEY"); err != nil || got != "the-next-value" {
		t.Errorf("the value is %q, %v", got, err)
	}
	next, err = svc.Update(ctx, me, "openai-key", secrets.Request{Value: value, Metadata: map[string]string{}})
	if err != nil || next.Version != 3 || len(next.Metadata) != 0 {
		t.Errorf("got %+v, %v", next, err)
	}

	if err := svc.Delete(ctx, me, "openai-key"); err != nil {
		t.Fatal(err)
	}
	_, err = svc.Value(ctx, me.Project, "openai-key")
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the value of a deleted secret: %v", err)
	}
	wantCode(t, svc.Delete(ctx, me, string(made.ID)), berth.CodeNotFound)
	_, err = svc.Update(ctx, me, string(made.ID), secrets.Request{Value: value})
	wantCode(t, err, berth.CodeNotFound)
	if got, err := svc.Value(ctx, them.Project, "openai-key"); err != nil || got != "another project's" {
		t.Errorf("the other project's value is %q, %v", got, err)
	}
	// all before are written
	if err := record.Commit(ctx, audit.Entry{Action: audit.KeyCreated, Project: them.Project}); err != nil {
		t.Fatal(err)
	}
	entries, _, err := record.Latest(ctx, audit.Query{Project: me.Project, Limit: 10, Before: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	var actions []audit.Action
	for _, e := range entries {
		actions = append(actions, e.Action)
		if e.Object != string(made.ID) || e.Name != "openai-key" || e.Key != me.Key ||
			strings.Contains(fmt.Sprintf("%+v", e), value) {
			t.Errorf("the entry %+v", e)
		}
	}
	if want := []audit.Action{audit.SecretDeleted, audit.SecretUpdated, audit.SecretUpdated,
		audit.SecretCreated}; !cmp.Equal(actions, want) {
		t.Errorf("the record has %v, want %v", actions, want)
	}
}

// Whoever can write to the database cannot bring back an earlier value, or have the value of one secret sent as
// another.
func TestSealedValueIsBound(t *testing.T) {
	svc, db, _ := newService(t)
	ctx := t.Context()
	for name, value := range map[string]string{"a": "value of a", "b": "value of b"} {
		if _, err := svc.Create(ctx, me, name, secrets.Request{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string) store.ObjectKey { return store.ObjectKey{Kind: store.KindSecret, ID: name} }
	a, err := db.GetObject(ctx, me.Project, key("a"))
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Replace(a.Body, []byte(`"version":1`), []byte(`"version":2`), 1)
	if bytes.Equal(forged, a.Body) {
		t.Fatalf("no version in %s", a.Body)
	}
	for what, forge := range map[string]func(o *store.Object){
		"another secret's": func(o *store.Object) { o.Body = a.Body },
		"another version":  func(o *store.Object) { o.Body = forged },
	} {
		if _, err := db.UpdateObject(ctx, me.Project, key("b"), func(o *store.Object) error {
			forge(o)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := svc.Value(ctx, me.Project, "b"); err == nil {
			t.Errorf("%s: got %q", what, got)
		}
	}
}

func TestBadRequests(t *testing.T) {
	svc, _, _ := newService(t)
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprint(i)] = ""
	}
	large := map[string]string{}
	for i := range 9 {
		large[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	for name, bad := range map[string]struct {
		name string
		req  secrets.Request
	}{
		"no name":       {"", secrets.Request{Value: value}},
		"a long name":   {strings.Repeat("x", 129), secrets.Request{Value: value}},
		"a brace":       {"a}b", secrets.Request{Value: value}},
		"a line end":    {"a\nb", secrets.Request{Value: value}},
		"not UTF-8":     {"a\xff", secrets.Request{Value: value}},
		"an id as name": {"SEC_a", secrets.Request{Value: value}},
		"a short value": {"a", secrets.Request{Value: "abc"}},
		"a long value":  {"a", secrets.Request{Value: strings.Repeat("x", 16<<10+1)}},
		"two lines":     {"a", secrets.Request{Value: value + "\nX: y"}},
		"a space":       {"a", secrets.Request{Value: value + " "}},
		"a control":     {"a", secrets.Request{Value: value + "\x7fa"}},
		"many entries":  {"a", secrets.Request{Value: value, Metadata: many}},
		"a long key": {"a",
			secrets.Request{Value: value, Metadata: map[string]string{strings.Repeat("x", 129): ""}}},
		"a long text": {"a",
			secrets.Request{Value: value, Metadata: map[string]string{"a": strings.Repeat("x", 1025)}}},
		"large metadata": {"a", secrets.Request{Value: value, Metadata: large}},
	} {
		if _, err := svc.Create(t.Context(), me, bad.name, bad.req); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if list, _, err := svc.List(t.Context(), me.Project, store.Page{Limit: 10, Ascending: true}); err != nil ||
		len(list) > 0 {
		t.Errorf("got %v, %v", list, err)
	}
}

// Of many clients that create one name, one succeeds. Concurrent updates give each their own version.
func TestConcurrentChanges(t *testing.T) {
	svc, _, _ := newService(t)
	var made, versions atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := svc.Create(t.Context(), me, "a", secrets.Request{Value: value}); err == nil {
				made.Add(1)
			} else {
				wantCode(t, err, berth.CodeConflict)
			}
		})
	}
	all.Wait()
	for range 8 {
		all.Go(func() {
			s, err := svc.Update(t.Context(), me, "a", secrets.Request{Value: value})
			if err != nil {
				t.Error(err)
				return
			}
			versions.Add(s.Version)
		})
	}
	all.Wait()
	if made.Load() != 1 || versions.Load() != 2+3+4+5+6+7+8+9 {
		t.Errorf("%d were created, the versions add up to %d", made.Load(), versions.Load())
	}
}
