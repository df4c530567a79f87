// Package sshkeys stores public keys with which clients of SSH sign in. A public key acts as the API key, or as the
// person, that added it: it may never do more, and it ends with it.
package sshkeys

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// Limits of public keys.
const (
	maxName     = 128
	maxText     = 16 << 10 // bytes of a public key
	maxOfHolder = 64       // records of one public key, in all projects
	maxProject  = 1000     // public keys of a project
	minRSA      = 2048     // bits
)

// house is the project of the index, which belongs to no project.
const house = berth.AdminProject

// A Key is a public key of a project.
type Key struct {
	ID          berth.SSHKeyID `json:"id"`
	Object      string         `json:"object"` // "ssh_key"
	Name        string         `json:"name"`
	Fingerprint string         `json:"fingerprint"` // "SHA256:" and a hash, as OpenSSH shows it
	PublicKey   string         `json:"public_key"`  // in the form of authorized_keys, without a comment
	APIKeyID    berth.KeyID    `json:"api_key_id"`  // the API key, or the person, as which it acts
	CreatedAt   int64          `json:"created_at"`
	ExpiresAt   *int64         `json:"expires_at"` // null: it does not expire
}

// Expired reports whether a key has expired at a time.
func (k *Key) Expired(now time.Time) bool { return k.ExpiresAt != nil && *k.ExpiresAt <= now.Unix() }

// A Holder is a key with its project.
type Holder struct {
	Project berth.ProjectID
	Key     *Key
}

// An Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

// Options are what a Service needs.
type Options struct {
	Objects store.Objects
	Audit   Auditor
	Now     func() time.Time // default time.Now
}

// A Service stores public keys. It is safe for concurrent use.
type Service struct{ opts Options }

// New returns a service.
func New(opts Options) *Service {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Service{opts}
}

// A Request describes a new key.
type Request struct {
	Name      string
	PublicKey string
	ExpiresAt *int64 // Unix seconds
}

// Parse parses a public key in the form of authorized_keys. Options and certificates are refused.
func Parse(text string) (key ssh.PublicKey, comment string, err error) {
	if len(text) > maxText {
		return nil, "", berth.Invalid("public_key", "Invalid 'public_key': it has more than %d bytes.", maxText)
	}
	if strings.Contains(text, "PRIVATE KEY") {
		return nil, "", berth.Invalid("public_key",
			"Invalid 'public_key': this is a private key. Replace it, because it has left its machine, and add the public one.")
	}
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil:
		return nil, "", berth.Invalid("public_key",
			"Invalid 'public_key': expected a public key as OpenSSH writes it, such as 'ssh-ed25519 AAAA…'.")
	case len(options) > 0:
		return nil, "", berth.Invalid("public_key", "Invalid 'public_key': options of authorized_keys are not supported.")
	case strings.TrimSpace(string(rest)) != "":
		return nil, "", berth.Invalid("public_key", "Invalid 'public_key': expected one key.")
	}
	if err := checkType(key); err != nil {
		return nil, "", err
	}
	return key, comment, nil
}

// checkType refuses keys that are too weak, and certificates.
func checkType(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		if rsaBits(key) >= minRSA {
			return nil
		}
		return berth.Invalid("public_key", "Invalid 'public_key': an RSA key needs at least %d bits.", minRSA)
	}
	return berth.Invalid("public_key", "Invalid 'public_key': keys of type '%s' are not supported.", key.Type())
}

// Create adds a public key of the caller.
func (s *Service) Create(ctx context.Context, c berth.Caller, req Request) (*Key, error) {
	if c.Key == "" {
		return nil, berth.Invalid("", "A public key acts as the API key that adds it, and this server has none yet. "+
			"Create one with 'berth key create'.")
	}
	public, comment, err := Parse(req.PublicKey)
	if err != nil {
		return nil, err
	}
	if req.Name == "" {
		req.Name = cmp.Or(clip(comment), ssh.FingerprintSHA256(public))
	}
	if err := checkName(req.Name); err != nil {
		return nil, err
	}
	now := s.opts.Now()
	if req.ExpiresAt != nil && *req.ExpiresAt <= now.Unix() {
		return nil, berth.Invalid("expires_at", "Invalid 'expires_at': it is in the past.")
	}
	known, _, err := s.List(ctx, c.Project, store.Page{Limit: maxProject})
	if err != nil {
		return nil, err
	}
	if len(known) >= maxProject {
		return nil, berth.Errorf(berth.CodeConflict, "The project has %d public keys, which is the limit.", maxProject)
	}
	print := ssh.FingerprintSHA256(public)
	if slices.ContainsFunc(known, func(k *Key) bool { return k.Fingerprint == print && k.APIKeyID == c.Key }) {
		return nil, berth.Errorf(berth.CodeConflict, "This API key has the public key %s already.", print)
	}
	k := &Key{ID: berth.SSHKeyID(berth.NewID(berth.PrefixSSHKey)), Object: "ssh_key", Name: req.Name,
		Fingerprint: print, APIKeyID: c.Key, CreatedAt: now.Unix(), ExpiresAt: req.ExpiresAt,
		PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))}
	if err := s.enter(ctx, public, entry{c.Project, k.ID}); err != nil {
		return nil, err
	}
	body, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	o := &store.Object{ObjectKey: keyOf(k.ID), CreatedAt: k.CreatedAt, Body: body}
	if err := s.opts.Objects.CreateObjects(ctx, c.Project, o); err != nil {
		return nil, fmt.Errorf("save public key: %w", err)
	}
	if err := s.record(ctx, c, audit.SSHKeyCreated, k); err != nil {
		return nil, errors.Join(err, s.opts.Objects.DeleteObject(context.WithoutCancel(ctx), c.Project, o.ObjectKey))
	}
	return k, nil
}

// Get returns a key of a project.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.SSHKeyID) (*Key, error) {
	o, err := s.opts.Objects.GetObject(ctx, p, keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	return decode(o)
}

// List returns one page of a project's keys, and whether there are more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*Key, bool, error) {
	objects, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindSSHKey, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list public keys: %w", err)
	}
	keys := make([]*Key, len(objects))
	for i, o := range objects {
		if keys[i], err = decode(o); err != nil {
			return nil, false, err
		}
	}
	return keys, more, nil
}

// Delete removes a key. A caller who may not manage the project can remove its own keys only.
func (s *Service) Delete(ctx context.Context, c berth.Caller, id berth.SSHKeyID) error {
	k, err := s.Get(ctx, c.Project, id)
	if err != nil {
		return err
	}
	if k.APIKeyID != c.Key && !c.May(berth.MayManage) {
		return berth.Forbidden(berth.MayManage)
	}
	err = s.opts.Objects.DeleteObject(ctx, c.Project, keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	if err != nil {
		return fmt.Errorf("delete public key: %w", err)
	}
	if public, _, err := Parse(k.PublicKey); err == nil {
		if err := s.leave(ctx, public, entry{c.Project, id}); err != nil {
			return err
		}
	}
	return s.record(ctx, c, audit.SSHKeyDeleted, k)
}

// Holders returns the records of a public key, in all projects, that have not expired.
func (s *Service) Holders(ctx context.Context, public ssh.PublicKey) ([]Holder, error) {
	o, err := s.opts.Objects.GetObject(ctx, house, indexKey(public))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find public key: %w", err)
	}
	var entries []entry
	if err := json.Unmarshal(o.Body, &entries); err != nil {
		return nil, fmt.Errorf("decode index of public keys: %w", err)
	}
	var found []Holder
	for _, e := range entries {
		k, err := s.Get(ctx, e.Project, e.ID)
		if berth.ErrorCode(err) == berth.CodeNotFound {
			continue // it was deleted, or never saved
		}
		if err != nil {
			return nil, err
		}
		if !k.Expired(s.opts.Now()) {
			found = append(found, Holder{e.Project, k})
		}
	}
	return found, nil
}

// An entry of the index leads to a record, which may be gone.
type entry struct {
	Project berth.ProjectID `json:"project"`
	ID      berth.SSHKeyID  `json:"id"`
}

// enter adds an entry to the index of a public key. It drops entries whose record is gone if there are too many.
func (s *Service) enter(ctx context.Context, public ssh.PublicKey, e entry) error {
	body, err := json.Marshal([]entry{e})
	if err != nil {
		return fmt.Errorf("encode index of public keys: %w", err)
	}
	err = s.opts.Objects.CreateObjects(ctx, house, &store.Object{ObjectKey: indexKey(public),
		CreatedAt: s.opts.Now().Unix(), Body: body})
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	found, err := s.Holders(ctx, public)
	if err != nil {
		return err
	}
	if len(found) >= maxOfHolder {
		return berth.Errorf(berth.CodeConflict, "This public key is in use %d times, which is the limit.", maxOfHolder)
	}
	return s.change(ctx, public, func(entries []entry) []entry {
		if len(entries) >= 2*maxOfHolder {
			entries = slices.DeleteFunc(entries, func(e entry) bool {
				return !slices.ContainsFunc(found, func(h Holder) bool { return h.Key.ID == e.ID })
			})
		}
		return append(entries, e)
	})
}

// leave removes an entry from the index.
func (s *Service) leave(ctx context.Context, public ssh.PublicKey, e entry) error {
	err := s.change(ctx, public, func(entries []entry) []entry {
		return slices.DeleteFunc(entries, func(other entry) bool { return other == e })
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func (s *Service) change(ctx context.Context, public ssh.PublicKey, change func([]entry) []entry) error {
	_, err := s.opts.Objects.UpdateObject(ctx, house, indexKey(public), func(o *store.Object) error {
		var entries []entry
		err := json.Unmarshal(o.Body, &entries)
		if err == nil {
			o.Body, err = json.Marshal(change(entries))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("change index of public keys: %w", err)
	}
	return nil
}

func (s *Service) record(ctx context.Context, c berth.Caller, action audit.Action, k *Key) error {
	if s.opts.Audit == nil {
		return nil
	}
	err := s.opts.Audit.Commit(ctx, audit.Entry{Action: action, Project: c.Project, Key: c.Key, Object: string(k.ID),
		Name: k.Fingerprint})
	if err != nil {
		return fmt.Errorf("record change of public key: %w", err)
	}
	return nil
}

func keyOf(id berth.SSHKeyID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSSHKey, ID: string(id)}
}

func indexKey(public ssh.PublicKey) store.ObjectKey {
	sum := sha256.Sum256(public.Marshal())
	return store.ObjectKey{Kind: store.KindSSHKeyIndex, ID: hex.EncodeToString(sum[:])}
}

func decode(o *store.Object) (*Key, error) {
	k := &Key{}
	if err := json.Unmarshal(o.Body, k); err != nil {
		return nil, fmt.Errorf("decode public key: %w", err)
	}
	return k, nil
}

func notFound(id berth.SSHKeyID) error {
	return berth.Errorf(berth.CodeNotFound, "SSH key with id '%s' not found.", clip(string(id)))
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return berth.Invalid("name", "Invalid 'name': expected 1 to %d bytes without control characters.", maxName)
	}
	return nil
}

func clip(text string) string {
	if len(text) > maxName {
		text = text[:maxName]
	}
	return strings.ToValidUTF8(text, "")
}
