// Package secrets stores the secrets of projects. A value can be replaced, but no request reads it: it is only filled
// in where a network rule of a sandbox names it (package egress).
package secrets

import (
	"context"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// Bounds on a secret. Those on metadata are E2B's.
const (
	minValue    = 4 // a shorter one would be masked everywhere in the responses of its hosts
	maxValue    = 16 << 10
	maxName     = 128
	maxEntries  = 32
	maxKey      = 128
	maxText     = 1024
	maxMetadata = 8 << 10
)

// A Secret describes a secret without its value.
type Secret struct {
	ID        berth.SecretID    `json:"id"`
	Name      string            `json:"name"` // in lower case, unique in its project
	Version   int64             `json:"version"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt int64             `json:"created_at"` // Unix milliseconds
	UpdatedAt int64             `json:"updated_at"`
}

// A record is a secret as it is stored, by its name.
type record struct {
	Secret
	Value []byte `json:"value"` // sealed
}

// Options are what a Service needs. Audit may be nil.
type Options struct {
	Objects store.Objects
	Seal    cipher.AEAD // from seal.New
	Audit   *audit.Log
}

// A Service stores secrets. It is safe for concurrent use.
type Service struct{ opts Options }

// New returns a service.
func New(opts Options) *Service { return &Service{opts} }

// A Request has a secret's value, and metadata unless it is nil.
type Request struct {
	Value    string
	Metadata map[string]string
}

// Create stores a new secret. Names are compared in lower case.
func (svc *Service) Create(ctx context.Context, c berth.Caller, name string, req Request) (*Secret, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	name = strings.ToLower(name)
	if err := req.check(); err != nil {
		return nil, err
	}
	now := time.Now().UnixMilli()
	rec := &record{Secret: Secret{ID: berth.SecretID(berth.NewID(berth.PrefixSecret)), Name: name, Version: 1,
		Metadata: map[string]string{}, CreatedAt: now, UpdatedAt: now}}
	maps.Copy(rec.Metadata, req.Metadata)
	svc.seal(c.Project, rec, req.Value)
	body, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode secret: %w", err)
	}
	err = svc.opts.Objects.CreateObjects(ctx, c.Project, &store.Object{ObjectKey: keyOf(name), CreatedAt: now / 1000,
		Body: body})
	if errors.Is(err, store.ErrExists) {
		return nil, berth.Errorf(berth.CodeConflict, "The project has a secret with the name '%s' already.", name)
	}
	if err != nil {
		return nil, fmt.Errorf("save secret: %w", err)
	}
	svc.record(c, audit.SecretCreated, &rec.Secret)
	return &rec.Secret, nil
}

// Update replaces the value of a secret, which an id or a name names. The former value is not kept.
func (svc *Service) Update(ctx context.Context, c berth.Caller, ref string, req Request) (*Secret, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	found, err := svc.Get(ctx, c.Project, ref)
	if err != nil {
		return nil, err
	}
	var rec *record
	_, err = svc.opts.Objects.UpdateObject(ctx, c.Project, keyOf(found.Name), func(o *store.Object) (err error) {
		if rec, err = decode(o); err != nil {
			return err
		}
		if rec.ID != found.ID {
			return store.ErrNotFound // it was deleted, and another has its name
		}
		rec.Version, rec.UpdatedAt = rec.Version+1, time.Now().UnixMilli()
		if req.Metadata != nil {
			rec.Metadata = maps.Clone(req.Metadata)
		}
		svc.seal(c.Project, rec, req.Value)
		o.Body, err = json.Marshal(rec)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(ref)
	}
	if err != nil {
		return nil, fmt.Errorf("save secret: %w", err)
	}
	svc.record(c, audit.SecretUpdated, &rec.Secret)
	return &rec.Secret, nil
}

// Get returns the secret that an id or a name names.
func (svc *Service) Get(ctx context.Context, p berth.ProjectID, ref string) (*Secret, error) {
	name := strings.ToLower(ref)
	if strings.HasPrefix(name, berth.PrefixSecret) {
		return svc.byID(ctx, p, berth.SecretID(name))
	}
	rec, err := svc.read(ctx, p, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(ref)
	}
	if err != nil {
		return nil, err
	}
	return &rec.Secret, nil
}

// byID finds a secret among all of its project: it is stored by its name, by which rules name it.
func (svc *Service) byID(ctx context.Context, p berth.ProjectID, id berth.SecretID) (*Secret, error) {
	page := store.Page{Limit: 100}
	for more := true; more; {
		var secrets []*Secret
		var err error
		if secrets, more, err = svc.List(ctx, p, page); err != nil {
			return nil, err
		}
		for _, s := range secrets {
			if s.ID == id {
				return s, nil
			}
			page.After = s.Name
		}
	}
	return nil, notFound(string(id))
}

// List returns one page of secrets, in the order of their creation, and whether there are more. For an unknown
// page.After it returns store.ErrNotFound.
func (svc *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*Secret, bool, error) {
	objects, more, err := svc.opts.Objects.ListObjects(ctx, p, store.KindSecret, "", page)
	if err != nil {
		return nil, false, err
	}
	secrets := make([]*Secret, len(objects))
	for i, o := range objects {
		rec, err := decode(o)
		if err != nil {
			return nil, false, err
		}
		secrets[i] = &rec.Secret
	}
	return secrets, more, nil
}

// Delete deletes a secret with its value.
func (svc *Service) Delete(ctx context.Context, c berth.Caller, ref string) error {
	s, err := svc.Get(ctx, c.Project, ref)
	if err != nil {
		return err
	}
	err = svc.opts.Objects.DeleteObject(ctx, c.Project, keyOf(s.Name))
	if errors.Is(err, store.ErrNotFound) {
		return notFound(ref)
	}
	if err != nil {
		return fmt.Errorf("delete secret: %w", err)
	}
	svc.record(c, audit.SecretDeleted, s)
	return nil
}

// Value returns the present value of the secret with a name, or store.ErrNotFound.
func (svc *Service) Value(ctx context.Context, p berth.ProjectID, name string) (string, error) {
	rec, err := svc.read(ctx, p, strings.ToLower(name))
	if err != nil {
		return "", err
	}
	value, err := svc.opts.Seal.Open(nil, nil, rec.Value, bound(p, rec))
	if err != nil {
		return "", fmt.Errorf("unseal secret %s: %w", rec.ID, err)
	}
	return string(value), nil
}

func (svc *Service) read(ctx context.Context, p berth.ProjectID, name string) (*record, error) {
	o, err := svc.opts.Objects.GetObject(ctx, p, keyOf(name))
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	return decode(o)
}

// seal seals a value in a record.
func (svc *Service) seal(p berth.ProjectID, rec *record, value string) {
	rec.Value = svc.opts.Seal.Seal(nil, nil, []byte(value), bound(p, rec))
}

// bound returns the associated data that binds a sealed value to its secret and version.
func bound(p berth.ProjectID, rec *record) []byte {
	return fmt.Appendf(nil, "secret\x00%s\x00%s\x00%s\x00%d", p, rec.ID, rec.Name, rec.Version)
}

func (svc *Service) record(c berth.Caller, action audit.Action, s *Secret) {
	if svc.opts.Audit != nil {
		svc.opts.Audit.Record(audit.Entry{Action: action, Project: c.Project, Key: c.Key, Object: string(s.ID),
			Name: s.Name})
	}
}

func keyOf(name string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSecret, ID: name}
}

func decode(o *store.Object) (*record, error) {
	rec := &record{}
	if err := json.Unmarshal(o.Body, rec); err != nil {
		return nil, fmt.Errorf("decode secret: %w", err)
	}
	rec.Name = o.ID // to which the value is bound
	return rec, nil
}

func notFound(ref string) error {
	if len(ref) > 2*maxName {
		ref = ref[:2*maxName] + "…"
	}
	return berth.Errorf(berth.CodeNotFound, "Secret '%s' not found.", strings.ToValidUTF8(ref, ""))
}

// checkName checks a name in any case. It is a part of placeholders, "${e2b.secrets.NAME}".
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return berth.Invalid("name", "Invalid 'name': expected 1 to %d bytes.", maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool {
		return r == '{' || r == '}' || unicode.IsControl(r)
	}):
		return berth.Invalid("name", "Invalid 'name': braces and control characters are not allowed.")
	case strings.HasPrefix(strings.ToLower(name), berth.PrefixSecret):
		return berth.Invalid("name", "Invalid 'name': names that begin with '%s' are ids.", berth.PrefixSecret)
	}
	return nil
}

// check checks a request. Its errors do not contain the value.
func (r Request) check() error {
	if len(r.Value) < minValue || len(r.Value) > maxValue || strings.ContainsFunc(r.Value, unicode.IsControl) ||
		strings.TrimSpace(r.Value) != r.Value {
		// HTTP removes white space around the value of a header field, so it would not arrive as it is.
		return berth.Invalid("value",
			"Invalid 'value': expected %d to %d bytes on one line, without white space at the start or the end.",
			minValue, maxValue)
	}
	if len(r.Metadata) > maxEntries {
		return berth.Invalid("metadata", "Invalid 'metadata': expected at most %d entries, but got %d.", maxEntries,
			len(r.Metadata))
	}
	sum := 0
	for key, text := range r.Metadata {
		if len(key) > maxKey || len(text) > maxText {
			return berth.Invalid("metadata", "Invalid 'metadata': a key has at most %d bytes, and a value %d.", maxKey,
				maxText)
		}
		sum += len(key) + len(text)
	}
	if sum > maxMetadata {
		return berth.Invalid("metadata", "Invalid 'metadata': expected at most %d bytes in all, but got %d.",
			maxMetadata, sum)
	}
	return nil
}
