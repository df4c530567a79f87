package oidc

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// noKeys is a store without keys.
type noKeys struct{ store.Keys }

func (noKeys) KeyByHash(context.Context, [32]byte) (*berth.Key, error) { return nil, store.ErrNotFound }
func (noKeys) KeyOf(context.Context, berth.Caller) (*berth.Key, error) { return nil, store.ErrNotFound }
func (noKeys) ListKeys(context.Context) ([]*berth.Key, error)          { return nil, nil }
