package sshkeys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

func newTest(t *testing.T) (*Service, *time.Time) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	now := time.Unix(1_000_000, 0)
	return New(Options{Objects: db, Now: func() time.Time { return now }}), &now
}

func newKey(t *testing.T) (ssh.PublicKey, string) {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func callerOf(p berth.ProjectID, key berth.KeyID, may berth.Permission) berth.Caller {
	return berth.Caller{Project: p, Key: key, Permissions: may}
}

// A public key has a record for each API key that added it, in any project, and no project can take it from another.
func TestHolders(t *testing.T) {
	s, now := newTest(t)
	public, text := newKey(t)
	a, b := callerOf("proj_a", "key_a", berth.MayAttach), callerOf("proj_b", "key_b", berth.MayAttach)
	later := now.Unix() + 60
	first, err := s.Create(t.Context(), a, Request{PublicKey: text + " me@laptop", ExpiresAt: &later})
	if err != nil || first.Name != "me@laptop" || first.PublicKey != text {
		t.Fatalf("got %+v, %v", first, err)
	}
	if _, err := s.Create(t.Context(), b, Request{Name: "same", PublicKey: text}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), a, Request{Name: "again", PublicKey: text}); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("the same key again: %v", err)
	}
	count := func(want int) {
		t.Helper()
		if found, err := s.Holders(t.Context(), public); err != nil || len(found) != want {
			t.Errorf("got %d holders, %v, want %d", len(found), err, want)
		}
	}
	count(2)
	*now = now.Add(time.Minute)
	count(1) // the first has expired
	if err := s.Delete(t.Context(), b, first.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("a key of another project: %v", err)
	}
	other := callerOf("proj_a", "key_c", berth.MayAttach)
	if err := s.Delete(t.Context(), other, first.ID); berth.ErrorCode(err) != berth.CodeForbidden {
		t.Errorf("a key of another API key: %v", err)
	}
	if err := s.Delete(t.Context(), callerOf("proj_a", "key_m", berth.MayManage), first.ID); err != nil {
		t.Error(err)
	}
	if list, _, err := s.List(t.Context(), "proj_a", store.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("%d are left, %v", len(list), err)
	}
	count(1)
}

// A public key cannot be used so often that nobody else can add it for nothing: removed records make room.
func TestIndexIsBounded(t *testing.T) {
	s, _ := newTest(t)
	public, text := newKey(t)
	add := func(key berth.KeyID) (*Key, error) {
		return s.Create(t.Context(), callerOf("proj_a", key, berth.MayAttach), Request{Name: "n", PublicKey: text})
	}
	var last *Key
	for i := range maxOfHolder {
		k, err := add(berth.KeyID("key_" + strings.Repeat("x", i)))
		if err != nil {
			t.Fatal(err)
		}
		last = k
	}
	if _, err := add("key_more"); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("one more: %v", err)
	}
	if err := s.Delete(t.Context(), callerOf("proj_a", last.APIKeyID, berth.MayAttach), last.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := add("key_more"); err != nil {
		t.Error(err)
	}
	if found, err := s.Holders(t.Context(), public); err != nil || len(found) != maxOfHolder {
		t.Errorf("got %d, %v", len(found), err)
	}
}

// Keys that are weak, private, or more than a key are refused.
func TestBadKeys(t *testing.T) {
	s, now := newTest(t)
	_, good := newKey(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weakKey, err := ssh.NewPublicKey(&weak.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(strong, "")
	if err != nil {
		t.Fatal(err)
	}
	c := callerOf("proj_a", "key_a", berth.MayAttach)
	past := now.Unix() - 1
	for what, req := range map[string]Request{
		"empty":        {Name: "n"},
		"text":         {Name: "n", PublicKey: "hello"},
		"options":      {Name: "n", PublicKey: `command="id" ` + good},
		"two":          {Name: "n", PublicKey: good + "\n" + good},
		"private":      {Name: "n", PublicKey: string(pem.EncodeToMemory(block))},
		"weak":         {Name: "n", PublicKey: string(ssh.MarshalAuthorizedKey(weakKey))},
		"long":         {Name: "n", PublicKey: good + " " + strings.Repeat("x", maxText)},
		"control":      {Name: "a\x1b[2J", PublicKey: good},
		"long name":    {Name: strings.Repeat("n", maxName+1), PublicKey: good},
		"already over": {Name: "n", PublicKey: good, ExpiresAt: &past},
	} {
		if _, err := s.Create(t.Context(), c, req); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if k, err := s.Create(t.Context(), c, Request{PublicKey: good}); err != nil || k.Name != k.Fingerprint {
		t.Errorf("without a name: got %+v, %v, want it called by its fingerprint", k, err)
	}
	if _, err := s.Create(t.Context(), berth.Caller{Project: "proj_a"}, Request{Name: "n", PublicKey: good}); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("without an API key: %v", err)
	}
	public, err := ssh.NewPublicKey(&strong.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), c, Request{Name: "n", PublicKey: string(ssh.MarshalAuthorizedKey(public))}); err != nil {
		t.Errorf("ECDSA: %v", err)
	}
}
