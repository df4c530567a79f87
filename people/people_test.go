package people

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

func newService(t *testing.T) (*Service, store.Keys, *time.Time) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	now := time.Unix(1_800_000_000, 0)
	s := New(Options{Objects: db, Issuer: "https://a", Life: time.Hour, Now: func() time.Time { return now },
		Grants: []Grant{{"red", "proj_red", berth.RoleMaintainer}, {"red", "proj_red", berth.RoleViewer}, {"ops", berth.AdminProject, berth.RoleAdmin}}})
	return s, s.Keys(db), &now
}

// A token is a key of its person and project; work without a session is the person's as long as there is access.
func TestTokensAreKeys(t *testing.T) {
	s, keys, now := newService(t)
	ctx := t.Context()
	session, err := s.SignIn(ctx, Claims{Issuer: "https://a", Subject: "1", Groups: []string{"red", "ops"}})
	if err != nil || len(session.Tokens) != 2 {
		t.Fatalf("got %+v, %v", session, err)
	}
	key, err := keys.KeyByHash(ctx, sha256.Sum256([]byte(session.Tokens[1].Secret)))
	if err != nil || key.Project != berth.AdminProject || key.ID != berth.KeyID(session.Person.ID) ||
		key.Session == "" || key.ExpiresAt != now.Add(time.Hour).Unix() {
		t.Errorf("got %+v, %v", key, err)
	}
	count := func() (sessions, persons int) {
		for _, token := range session.Tokens {
			hash := sha256.Sum256([]byte(token.Secret))
			c := berth.Caller{Project: token.Project, Key: berth.KeyID(session.Person.ID), Session: hex.EncodeToString(hash[:])}
			key, err := keys.KeyOf(ctx, c)
			if err == nil {
				sessions++
			} else if !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			if err == nil && (key.Caller() != berth.Caller{Project: c.Project, Key: c.Key, Session: c.Session, Person: "1",
				Permissions: berth.AllPermissions(c.Project)}) {
				t.Errorf("got %+v", key.Caller())
			}
			c.Project = "proj_other"
			if _, err := keys.KeyOf(ctx, c); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("a token in another project: got %v", err)
			}
		}
		list, err := keys.ListKeys(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return sessions, len(list)
	}
	if sessions, persons := count(); sessions != 2 || persons != 2 {
		t.Errorf("got %d tokens and %d projects of persons", sessions, persons)
	}
	if err := s.SignOut(ctx, session.Tokens[0].Secret); err != nil {
		t.Fatal(err)
	}
	if sessions, persons := count(); sessions != 0 || persons != 2 {
		t.Errorf("after the sign-out: got %d tokens and %d projects of persons", sessions, persons)
	}
	if err := s.Deactivate(ctx, session.Person.ID); err != nil {
		t.Fatal(err)
	}
	if sessions, persons := count(); sessions != 0 || persons != 0 {
		t.Errorf("after the deactivation: got %d tokens and %d projects of persons", sessions, persons)
	}
	if _, err := s.SignIn(ctx, Claims{Issuer: "https://a", Subject: "1", Groups: []string{"red"}}); !errors.Is(err,
		ErrDeactivated) {
		t.Errorf("got %v", err)
	}
	// The same subject of another issuer is somebody else, who has no access.
	if _, err := s.SignIn(ctx, Claims{Issuer: "https://b", Subject: "1", Groups: []string{"red"}}); !errors.Is(err,
		ErrNoAccess) {
		t.Errorf("got %v", err)
	}
}

// A person has a bounded number of sessions, and expired tokens are deleted.
func TestSessionsAreBounded(t *testing.T) {
	s, _, now := newService(t)
	ctx := t.Context()
	records := func() int {
		found, err := all[record](ctx, s.opts.Objects, store.KindPersonToken)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	var first, last *Session
	for range maxSessions + 1 {
		session, err := s.SignIn(ctx, Claims{Issuer: "https://a", Subject: "1", Groups: []string{"red"}})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = session
		}
		last = session
	}
	if records() != maxSessions {
		t.Errorf("got %d tokens", records())
	}
	for session, want := range map[*Session]bool{first: false, last: true} {
		if _, err := s.token(ctx, hashOf(session.Tokens[0].Secret)); (err == nil) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	*now = now.Add(time.Hour)
	if _, err := s.SignIn(ctx, Claims{Issuer: "https://a", Subject: "2", Groups: []string{"red"}}); err != nil {
		t.Fatal(err)
	}
	if records() != 1 {
		t.Errorf("%d tokens remain, want the new one", records())
	}
	p, err := s.Find(ctx, last.Person.ID[:12])
	if err != nil || p.Subject != "1" {
		t.Errorf("got %+v, %v", p, err)
	}
}

// A key never may do more than its owner, and ends with the owner's access.
func TestOwnedKeys(t *testing.T) {
	s, keys, _ := newService(t)
	ctx := t.Context()
	s.opts.Grants = append(s.opts.Grants, Grant{"blue", "proj_blue", berth.RoleViewer}, Grant{"blue", "proj_blue",
		berth.RoleApprover})
	session, err := s.SignIn(ctx, Claims{Issuer: "https://a", Subject: "1", Name: "ada", Groups: []string{"blue"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range []*berth.Key{{ID: "key_all", Project: "proj_blue"}, {ID: "key_viewer", Project: "proj_blue",
		Role: berth.RoleViewer}, {ID: "key_red", Project: "proj_red"}} {
		k.Owner, k.Hash = session.Person.ID, [32]byte{byte(i)}
		if err := keys.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...berth.Permission) {
		t.Helper()
		list, err := keys.ListKeys(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range []berth.KeyID{"key_all", "key_viewer", "key_red"} {
			project := berth.ProjectID("proj_blue")
			if id == "key_red" {
				project = "proj_red"
			}
			one, err := keys.KeyOf(ctx, berth.Caller{Project: project, Key: id})
			if err != nil {
				t.Fatal(err)
			}
			same, err := keys.KeyByHash(ctx, one.Hash)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(list, func(k *berth.Key) bool { return k.ID == id })
			for _, k := range []*berth.Key{one, same, list[at]} {
				if k.Person != "ada" {
					t.Errorf("%s is of %q", id, k.Person)
				}
				if k.Permissions() != want[i] || k.Lost() != (want[i] == 0) {
					t.Errorf("%s: got %s, want %s", id, k.Permissions(), want[i])
				}
			}
		}
	}
	const viewer = berth.MayRead | berth.MayReadUsage
	check(viewer|berth.MayApprove, viewer, 0)
	if err := s.Deactivate(ctx, session.Person.ID); err != nil {
		t.Fatal(err)
	}
	check(0, 0, 0)
}
