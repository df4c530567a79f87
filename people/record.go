package people

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth/store"
)

// objectOf returns a record as an object.
func objectOf[T any](key store.ObjectKey, now int64, record T) (*store.Object, error) {
	body, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key.Kind, err)
	}
	return &store.Object{ObjectKey: key, CreatedAt: now, Body: body}, nil
}

// get returns a record.
func get[T any](ctx context.Context, objects store.Objects, key store.ObjectKey) (*T, error) {
	o, err := objects.GetObject(ctx, house, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key.Kind, err)
	}
	record := new(T)
	if err := json.Unmarshal(o.Body, record); err != nil {
		return nil, fmt.Errorf("decode %s: %w", key.Kind, err)
	}
	return record, nil
}

// change changes a record and returns it.
func change[T any](ctx context.Context, objects store.Objects, key store.ObjectKey, edit func(*T) error) (*T, error) {
	var record *T
	_, err := objects.UpdateObject(ctx, house, key, func(o *store.Object) error {
		record = new(T)
		if err := json.Unmarshal(o.Body, record); err != nil {
			return fmt.Errorf("decode %s: %w", key.Kind, err)
		}
		if err := edit(record); err != nil {
			return err
		}
		body, err := json.Marshal(record)
		o.Body = body
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", key.Kind, err)
	}
	return record, nil
}
