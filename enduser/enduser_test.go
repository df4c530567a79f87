package enduser_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// A room is a service with objects that it can delete.
type room struct {
	*enduser.Service
	store store.Store
	clock *clock.Manual

	mu      sync.Mutex
	objects map[string]bool // that exist
	fail    string          // the object whose removal fails
	entries []audit.Entry
	snaps   []*berth.Snapshot
}

func (r *room) Commit(_ context.Context, entries ...audit.Entry) error {
	r.entries = append(r.entries, entries...)
	return nil
}

func (r *room) Checkpoint() string { return "signed" }

func newRoom(t *testing.T, change func(*enduser.Options)) *room {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r := &room{store: db, clock: clock.NewManual(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)),
		objects: map[string]bool{}}
	remove := func(_ context.Context, _ berth.Caller, id string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if id == r.fail {
			return errors.New("the disk is full")
		}
		if !r.objects[id] {
			return store.ErrNotFound
		}
		delete(r.objects, id)
		return nil
	}
	o := enduser.Options{Objects: db, Audit: r, Enabled: true, Computer: berth.ComputerChat, Currency: "USD",
		Sources: enduser.Sources{User: []string{"header:X-User", "metadata:user", "safety_identifier", "user"},
			Chat: []string{"header:X-Chat", "prompt_cache_key"}},
		Removers: map[string]enduser.Remover{berth.PrefixContainer: remove, berth.PrefixResponse: remove,
			berth.PrefixSnapshot: remove, enduser.PrefixTrace: remove},
		Snapshots: func(context.Context, berth.ProjectID, store.Page) ([]*berth.Snapshot, bool, error) {
			return r.snaps, false, nil
		},
		Log: slog.New(slog.DiscardHandler), Clock: r.clock}
	if change != nil {
		change(&o)
	}
	r.Service = enduser.New(o)
	return r
}

// header returns a caller of a project whose request has headers.
func (r *room) header(t *testing.T, p berth.ProjectID, headers map[string]string) berth.Caller {
	t.Helper()
	c, err := r.FromHeader(t.Context(), berth.Caller{Project: p, Key: "key_1"}, func(name string) string { return headers[name] })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// own creates objects of a user.
func (r *room) own(t *testing.T, c berth.Caller, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := r.Ensure(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := r.Own(t.Context(), c, id); err != nil {
			t.Fatal(err)
		}
		r.objects[strings.TrimPrefix(id, enduser.PrefixTrace)] = true
	}
}

func TestIdentify(t *testing.T) {
	r := newRoom(t, nil)
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		headers    map[string]string
		req        berth.ResponseRequest
		user, chat string
	}{
		"headers": {headers: map[string]string{"X-User": "u", "X-Chat": "c"}, user: "u", chat: "c"},
		"a header before a field": {headers: map[string]string{"X-User": "u"},
			req: berth.ResponseRequest{User: text("v")}, user: "u"},
		"metadata before fields": {req: berth.ResponseRequest{Metadata: map[string]string{"user": "m"},
			SafetyIdentifier: text("s")}, user: "m"},
		"safety_identifier": {req: berth.ResponseRequest{SafetyIdentifier: text("s"), User: text("v")}, user: "s"},
		"user":              {req: berth.ResponseRequest{User: text("v")}, user: "v"},
		"prompt_cache_key":  {req: berth.ResponseRequest{PromptCacheKey: text("k")}, chat: "k"},
		"header and field": {headers: map[string]string{"X-Chat": "c"}, req: berth.ResponseRequest{User: text("v"),
			PromptCacheKey: text("k")}, user: "v", chat: "c"},
		"none": {},
	} {
		caller, err := r.FromRequest(t.Context(), r.header(t, "a", c.headers), &c.req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.user == "" && c.chat == "" {
			if caller.Subject != nil {
				t.Errorf("%s: the caller has a subject: %+v", name, caller.Subject)
			}
			continue
		}
		s := caller.Subject
		if s == nil || s.User != c.user || s.Chat != c.chat || s.EndUser != berth.NewEndUserID("a", c.user, c.chat) {
			t.Errorf("%s: the subject is %+v, want user %q, chat %q", name, s, c.user, c.chat)
		}
		if (s.Computer != "") != (c.chat != "") {
			t.Errorf("%s: the container has the name %q", name, s.Computer)
		}
	}
}

// Names that look alike are different users and chats, and no names of other lengths, users or projects meet.
func TestNamesDoNotCollide(t *testing.T) {
	r := newRoom(t, nil)
	type place struct{ user, chat string }
	seen := map[string]string{}
	for _, of := range []place{{"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", ""}, {"", "a"}, {"a", "b "}, {"a ", "b"},
		{"A", "b"}, {"é", "b"}, {"e\u0301", "b"}, {"a\u00a0", "b"}, {"a\u200b", "b"}, {"ａ", "b"}, {"ﬁ", ""}, {"fi", ""},
		{"a/b", ""}, {"a", "/b"}, {"../a", ""}, {"%61", ""}, {"ß", ""}, {"ss", ""}, {"İ", ""}, {"i", ""},
		{strings.Repeat("x", 511), ""}, {strings.Repeat("x", 512), ""}} {
		for _, p := range []berth.ProjectID{"a", "b"} {
			req := &berth.ResponseRequest{}
			if of.user != "" {
				req.User = &of.user
			}
			if of.chat != "" {
				req.PromptCacheKey = &of.chat
			}
			c, err := r.FromRequest(t.Context(), berth.Caller{Project: p}, req)
			if err != nil {
				t.Fatalf("%q: %v", of, err)
			}
			where := fmt.Sprintf("%s %q", p, of)
			id := fmt.Sprint(c.Subject.EndUser, " ", c.Subject.Computer)
			if was, taken := seen[id]; taken {
				t.Errorf("%s and %s have the id %s", where, was, id)
			}
			seen[id] = where
			if strings.Contains(id, "xxx") || len(c.Subject.Computer) > 64 {
				t.Errorf("%s: the id shows the name, or is long: %s", where, id)
			}
		}
	}
}

func TestHostileNames(t *testing.T) {
	r := newRoom(t, nil)
	for _, name := range []string{strings.Repeat("x", 513), "a\x00b", "a\nb", "a\r\nX-Evil: 1", "\x1b[2J", "a\x7f", "\xff\xfe",
		"a\u0085b", "a\u2028b", strings.Repeat("é", 257), strings.Repeat("x", 1<<20)} {
		_, err := r.FromHeader(t.Context(), berth.Caller{Project: "a"}, func(string) string { return name })
		if berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("a header %.20q: %v, want it to be refused", name, err)
		}
		_, err = r.FromRequest(t.Context(), berth.Caller{Project: "a"}, &berth.ResponseRequest{User: &name})
		if berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("a field %.20q: %v, want it to be refused", name, err)
		}
		if _, err := r.Named(t.Context(), berth.Caller{Project: "a"}, name); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("a body %.20q: %v, want it to be refused", name, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("the error repeats the name: %.400s", err)
		}
	}
	if list, _, err := r.List(t.Context(), "a", "", store.Page{Limit: 10}); err != nil || len(list) > 0 {
		t.Errorf("refused names left records: %v, %v", list, err)
	}
}

// While end users are off, names mean nothing, even those that would be refused.
func TestOff(t *testing.T) {
	r := newRoom(t, func(o *enduser.Options) { o.Enabled = false })
	bad := "a\nb"
	for _, name := range []string{"u", bad} {
		c, err := r.FromHeader(t.Context(), berth.Caller{Project: "a"}, func(string) string { return name })
		if err != nil || c.Subject != nil {
			t.Errorf("a header %q: %+v, %v, want no subject", name, c.Subject, err)
		}
		c, err = r.FromRequest(t.Context(), c, &berth.ResponseRequest{User: &name})
		if err != nil || c.Subject != nil {
			t.Errorf("a field %q: %+v, %v, want no subject", name, c.Subject, err)
		}
	}
	if _, err := r.Named(t.Context(), berth.Caller{Project: "a"}, "u"); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("a container for a user: %v, want a refusal", err)
	}

	// A project turns them on for itself alone.
	if _, err := r.SetSettings(t.Context(), "a", berth.EndUserSettings{Enabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	if c := r.header(t, "a", map[string]string{"X-User": "u"}); c.Subject == nil {
		t.Error("the project that turned end users on has none")
	}
	if c := r.header(t, "b", map[string]string{"X-User": "u"}); c.Subject != nil {
		t.Error("another project has end users, too")
	}
}

func TestSettings(t *testing.T) {
	r := newRoom(t, func(o *enduser.Options) { o.Limits.Containers = new(int64(3)) })
	s, err := r.Settings(t.Context(), "a")
	if err != nil || !*s.Enabled || s.Computer != berth.ComputerChat || *s.Limits.Containers != 3 {
		t.Fatalf("the settings without those of the project are %+v, %v", s, err)
	}
	s, err = r.SetSettings(t.Context(), "a", berth.EndUserSettings{Computer: berth.ComputerUser,
		Limits: berth.EndUserLimits{Containers: new(int64(1))}})
	if err != nil || !*s.Enabled || s.Computer != berth.ComputerUser || *s.Limits.Containers != 1 {
		t.Fatalf("the settings of the project are %+v, %v", s, err)
	}
	c, err := r.Ensure(t.Context(), r.header(t, "a", map[string]string{"X-User": "u", "X-Chat": "c"}))
	if err != nil || *c.Subject.Limits.Containers != 1 || c.Subject.Computer != berth.ComputerName("u", "") {
		t.Errorf("the subject is %+v, %v", c.Subject, err)
	}
	if _, err := r.SetLimits(t.Context(), "a", c.Subject.EndUser, berth.EndUserLimits{Containers: new(int64(7))}); err != nil {
		t.Fatal(err)
	}
	if c, err = r.Ensure(t.Context(), c); err != nil || *c.Subject.Limits.Containers != 7 {
		t.Errorf("the user's own limit: %+v, %v", c.Subject, err)
	}
	if _, err := r.SetLimits(t.Context(), "b", c.Subject.EndUser, berth.EndUserLimits{}); berth.ErrorCode(err) !=
		berth.CodeNotFound {
		t.Errorf("another project changes the limits: %v", err)
	}
}

// ended stores the usage of a response of a user.
func (r *room) ended(t *testing.T, c berth.Caller, id berth.ResponseID, cost berth.Amount) {
	t.Helper()
	final := &berth.Response{ID: id, Status: berth.StatusCompleted, Usage: &berth.Usage{InputTokens: 10, OutputTokens: 5},
		Berth: &berth.ResponseBerth{EndUser: c.Subject.EndUser, Usage: []berth.UpstreamUsage{{Cost: &berth.Cost{Value: cost, Currency: "USD"}}}}}
	if err := r.store.CreateObjects(t.Context(), c.Project, r.AtEnd(nil, final)...); err != nil {
		t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	limit := berth.Amount(2_000_000)
	r := newRoom(t, func(o *enduser.Options) { o.Limits.CostPerMonth = &limit })
	c := r.header(t, "a", map[string]string{"X-User": "u"})
	other := r.header(t, "a", map[string]string{"X-User": "v"})
	r.own(t, c, "cntr_1", "resp_1")
	r.own(t, other, "cntr_2")
	ask := func(c berth.Caller) error {
		_, err := r.FromRequest(t.Context(), c, &berth.ResponseRequest{})
		return err
	}
	r.ended(t, c, "resp_1", limit/2)
	if err := ask(c); err != nil {
		t.Errorf("with money left: %v", err)
	}
	r.ended(t, c, "resp_2", limit/2)
	if err := ask(c); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("without money: %v, want a refusal", err)
	}
	if err := ask(other); err != nil {
		t.Errorf("another user: %v", err)
	}
	u, err := r.Usage(t.Context(), "a", c.Subject.EndUser, r.clock.Now())
	if err != nil || u.Responses != 2 || u.Cost != limit || u.InputTokens != 20 || u.OutputTokens != 10 ||
		u.Containers != 1 || u.Month != "2026-11" {
		t.Errorf("the usage is %+v, %v", u, err)
	}
	if _, err := r.Usage(t.Context(), "b", c.Subject.EndUser, r.clock.Now()); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another project reads the usage: %v", err)
	}

	r.clock.Advance(5 * 24 * time.Hour) // the next month
	if err := ask(c); err != nil {
		t.Errorf("in the next month: %v", err)
	}
	if u, err := r.Usage(t.Context(), "a", c.Subject.EndUser, r.clock.Now()); err != nil || u.Responses != 0 {
		t.Errorf("the usage of the next month is %+v, %v", u, err)
	}
}

func TestForget(t *testing.T) {
	r := newRoom(t, nil)
	c := r.header(t, "a", map[string]string{"X-User": "u"})
	other := r.header(t, "a", map[string]string{"X-User": "v"})
	r.own(t, c, "cntr_1", "cntr_gone", "resp_1", "resp_2", enduser.PrefixTrace+"resp_of_v")
	r.own(t, other, "cntr_2", "resp_v")
	delete(r.objects, "cntr_gone") // a client has deleted it
	r.snaps = []*berth.Snapshot{{ID: berth.PrefixSnapshot + "1", EndUser: c.Subject.EndUser},
		{ID: berth.PrefixSnapshot + "2", EndUser: other.Subject.EndUser}}
	r.objects[berth.PrefixSnapshot+"1"], r.objects[berth.PrefixSnapshot+"2"] = true, true

	if _, err := r.Forget(t.Context(), berth.Caller{Project: "b"}, c.Subject.EndUser); berth.ErrorCode(err) !=
		berth.CodeNotFound {
		t.Errorf("another project forgets the user: %v", err)
	}
	done, err := r.Forget(t.Context(), berth.Caller{Project: "a", Key: "key_2"}, c.Subject.EndUser)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"container": 1, "response": 2, "trace": 1, "snapshot": 1}
	if !maps.Equal(done.Objects, want) || !done.Deleted || done.Checkpoint != "signed" {
		t.Errorf("deleted %+v, want %v", done, want)
	}
	if len(r.entries) != 1 || r.entries[0].Object != string(c.Subject.EndUser) || r.entries[0].Count != 5 ||
		r.entries[0].Key != "key_2" || r.entries[0].Action != audit.EndUserForgotten {
		t.Errorf("the audit record has %+v", r.entries)
	}
	for _, id := range []string{"cntr_2", "resp_v", berth.PrefixSnapshot + "2"} {
		if !r.objects[id] {
			t.Errorf("%s of another user is gone", id)
		}
	}
	if _, err := r.Get(t.Context(), "a", c.Subject.EndUser); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("the forgotten user: %v", err)
	}
	if _, err := r.Forget(t.Context(), berth.Caller{Project: "a"}, c.Subject.EndUser); berth.ErrorCode(err) !=
		berth.CodeNotFound {
		t.Errorf("a forgotten user is forgotten again: %v", err)
	}
	list, more, err := r.List(t.Context(), "a", "", store.Page{Limit: 1, Ascending: true})
	if err != nil || more || len(list) != 1 || list[0].User != "v" {
		t.Errorf("the list has %v, %v, %v, want the other user alone", list, more, err)
	}
	if list, _, err := r.List(t.Context(), "a", "u", store.Page{Limit: 1}); err != nil || len(list) != 0 {
		t.Errorf("the list by name has %v, %v", list, err)
	}
	if o, err := r.store.GetObject(t.Context(), "a", store.ObjectKey{Kind: store.KindEndUser,
		ID: string(c.Subject.EndUser)}); err != nil || strings.Contains(string(o.Body), `"u"`) {
		t.Errorf("what remains for late requests has the name: %s, %v", o.Body, err)
	}

	// A request that was admitted before creates something after the deletion.
	if err := r.Own(t.Context(), c, "cntr_late"); err != nil {
		t.Fatal(err)
	}
	r.objects["cntr_late"] = true
	r.clock.Advance(11 * time.Minute)
	if err := r.Sweep(t.Context(), r.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if r.objects["cntr_late"] {
		t.Error("the late container is there")
	}
	if _, err := r.store.GetObject(t.Context(), "a", store.ObjectKey{Kind: store.KindEndUser,
		ID: string(c.Subject.EndUser)}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the record: %v, want none", err)
	}
	if err := r.Own(t.Context(), c, "cntr_later"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a later object: %v, want a refusal", err)
	}
}

// A deletion that stopped in the middle refuses requests for the user, and continues with the sweep, also of a new
// process, and with the next request.
func TestForgetContinues(t *testing.T) {
	for _, by := range []string{"sweep", "request"} {
		r := newRoom(t, nil)
		c := r.header(t, "a", map[string]string{"X-User": "u"})
		r.own(t, c, "cntr_1", "cntr_2", "cntr_3")
		r.fail = "cntr_2"
		if _, err := r.Forget(t.Context(), c, c.Subject.EndUser); err == nil {
			t.Fatal("the deletion succeeds without a container")
		}
		if _, err := r.Ensure(t.Context(), c); berth.ErrorCode(err) != berth.CodeConflict {
			t.Errorf("a request for a user who is being deleted: %v", err)
		}
		if u, err := r.Get(t.Context(), "a", c.Subject.EndUser); err != nil || !u.Forgotten {
			t.Errorf("the user is %+v, %v", u, err)
		}
		r.fail = ""
		next := enduser.New(r.Options) // after a crash
		if err := next.Sweep(t.Context(), r.clock.Now()); err != nil {
			t.Fatal(err)
		}
		if !r.objects["cntr_2"] {
			t.Error("the sweep continues a deletion that another server may work on")
		}
		if by == "sweep" {
			r.clock.Advance(3 * time.Minute)
			if err := next.Sweep(t.Context(), r.clock.Now()); err != nil {
				t.Fatal(err)
			}
		} else if done, err := next.Forget(t.Context(), c, c.Subject.EndUser); err != nil || done.Objects["container"] != 3 {
			t.Errorf("by the next request: %+v, %v, want 3 containers", done, err)
		}
		if len(r.objects) > 0 {
			t.Errorf("%s: %v are left", by, slices.Collect(maps.Keys(r.objects)))
		}
		if len(r.entries) != 1 || r.entries[0].Count != 3 {
			t.Errorf("%s: the audit record has %+v, want one entry of 3 objects", by, r.entries)
		}
	}
}

// A user who returns after the deletion is new, and the sweep leaves the new data.
func TestReturn(t *testing.T) {
	r := newRoom(t, nil)
	c := r.header(t, "a", map[string]string{"X-User": "u"})
	r.own(t, c, "cntr_1")
	if _, err := r.SetLimits(t.Context(), "a", c.Subject.EndUser, berth.EndUserLimits{Containers: new(int64(9))}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Forget(t.Context(), c, c.Subject.EndUser); err != nil {
		t.Fatal(err)
	}
	r.own(t, c, "cntr_2")
	u, err := r.Get(t.Context(), "a", c.Subject.EndUser)
	if err != nil || u.User != "u" || u.Forgotten || u.Limits.Containers != nil {
		t.Errorf("the returned user is %+v, %v", u, err)
	}
	r.clock.Advance(time.Hour)
	if err := r.Sweep(t.Context(), r.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if !r.objects["cntr_2"] {
		t.Error("the sweep deleted the new container")
	}
}

// Concurrent first requests make one record.
func TestConcurrentFirstRequests(t *testing.T) {
	r := newRoom(t, nil)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := r.FromRequest(t.Context(), berth.Caller{Project: "a"}, &berth.ResponseRequest{User: new("u")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if list, _, err := r.List(t.Context(), "a", "", store.Page{Limit: 10}); err != nil || len(list) != 1 {
		t.Errorf("the records are %v, %v, want one", list, err)
	}
}
