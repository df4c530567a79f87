package people

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Keys returns the keys of a store and the tokens of sessions. A token is a key with the id of its person.
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
	if !errors.Is(err, store.ErrNotFound) {
		return key, err
	}
	r, err := k.people.token(ctx, hex.EncodeToString(hash[:]))
	if err != nil {
		return nil, err
	}
	p, err := k.people.Get(ctx, r.Person)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(k.people.Projects(p), r.Project) {
		return nil, fmt.Errorf("person %s has no access to %s: %w", p.ID, r.Project, store.ErrNotFound)
	}
	return r.key(hash), nil
}

func (r *record) key(hash [sha256.Size]byte) *berth.Key {
	return &berth.Key{ID: berth.KeyID(r.Person), Project: r.Project, Name: r.Person, Hash: hash, CreatedAt: r.Created,
		ExpiresAt: r.Expires, Session: r.Session}
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
	access := map[string][]berth.ProjectID{}
	for _, p := range persons {
		access[p.ID] = k.people.Projects(p)
		for _, project := range access[p.ID] {
			keys = append(keys, &berth.Key{ID: berth.KeyID(p.ID), Project: project, Name: p.Label(),
				CreatedAt: p.CreatedAt})
		}
	}
	records, err := all[record](ctx, k.people.opts.Objects, store.KindPersonToken)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if slices.Contains(access[r.Person], r.Project) {
			keys = append(keys, r.key([sha256.Size]byte{}))
		}
	}
	return keys, nil
}
