package people

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Keys returns the keys of a store and the tokens of sessions. A token is a key with the id of its person. What a key
// may do is bounded by what its owner may do now.
//
// The list also has each person with access as a key without a session: work that runs in the background for a
// person continues after a sign-out and ends when the person has no access any more.
func (s *Service) Keys(keys store.Keys) store.Keys { return personKeys{keys, s} }

type personKeys struct {
	store.Keys
	people *Service
}

// KeyByHash implements store.Keys.
func (k personKeys) KeyByHash(ctx context.Context, hash [sha256.Size]byte) (*berth.Key, error) {
	key, err := k.Keys.KeyByHash(ctx, hash)
	if errors.Is(err, store.ErrNotFound) {
		return k.token(ctx, hex.EncodeToString(hash[:]))
	}
	if err != nil {
		return nil, err
	}
	return k.bound(ctx, key)
}

// KeyOf implements store.Keys. The session of a caller is the hash of its token.
func (k personKeys) KeyOf(ctx context.Context, c berth.Caller) (*berth.Key, error) {
	if !strings.HasPrefix(string(c.Key), personPrefix) {
		key, err := k.Keys.KeyOf(ctx, c)
		if err != nil {
			return nil, err
		}
		return k.bound(ctx, key)
	}
	if c.Session != "" {
		key, err := k.token(ctx, c.Session)
		if err == nil && (key.ID != c.Key || key.Project != c.Project) {
			err = store.ErrNotFound
		}
		return key, err
	}
	p, err := k.people.Get(ctx, string(c.Key))
	if err != nil {
		return nil, err
	}
	return k.keyOf(p, c.Project)
}

// token returns the token with a hash as a key.
func (k personKeys) token(ctx context.Context, hash string) (*berth.Key, error) {
	r, err := k.people.token(ctx, hash)
	if err != nil {
		return nil, err
	}
	p, err := k.people.Get(ctx, r.Person)
	if err != nil {
		return nil, err
	}
	key, err := k.keyOf(p, r.Project)
	if err != nil {
		return nil, err
	}
	return r.fill(key)
}

// fill makes the key of a person that of a token.
func (r *record) fill(key *berth.Key) (*berth.Key, error) {
	raw, err := hex.DecodeString(r.Hash)
	if err != nil || len(raw) != sha256.Size {
		return nil, store.ErrNotFound
	}
	key.Hash, key.CreatedAt, key.ExpiresAt, key.Session = [sha256.Size]byte(raw), r.Created, r.Expires, r.Hash
	return key, nil
}

// keyOf returns a person as a key of a project, or store.ErrNotFound for one without access.
func (k personKeys) keyOf(p *Person, project berth.ProjectID) (*berth.Key, error) {
	may := k.people.Permissions(p, project)
	if may == 0 {
		return nil, store.ErrNotFound
	}
	return &berth.Key{ID: berth.KeyID(p.ID), Project: project, Name: p.Label(), CreatedAt: p.CreatedAt, Owner: p.ID,
		Bound: may, Person: p.Label()}, nil
}

// bound sets what the owner of a key may do.
func (k personKeys) bound(ctx context.Context, key *berth.Key) (*berth.Key, error) {
	if key.Owner == "" {
		return key, nil
	}
	p, err := k.people.Get(ctx, key.Owner)
	if errors.Is(err, store.ErrNotFound) {
		return key, nil // bound to nothing
	}
	if err != nil {
		return nil, err
	}
	key.Bound, key.Person = k.people.Permissions(p, key.Project), p.Label()
	return key, nil
}

// ListKeys implements store.Keys.
func (k personKeys) ListKeys(ctx context.Context) ([]*berth.Key, error) {
	keys, err := k.Keys.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	persons, err := k.people.List(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[string]*Person{}
	for _, p := range persons {
		byID[p.ID] = p
	}
	for _, key := range keys {
		if p := byID[key.Owner]; p != nil {
			key.Bound, key.Person = k.people.Permissions(p, key.Project), p.Label()
		}
	}
	for _, p := range persons {
		for _, project := range k.people.Projects(p) {
			if key, err := k.keyOf(p, project); err == nil {
				keys = append(keys, key)
			}
		}
	}
	return slices.Clip(keys), nil
}
