// Package idempotency stores what the requests with an Idempotency-Key have led to.
package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Kind is the kind of the stored objects.
const Kind = store.KindIdempotency

// Life is the time until a record expires.
const Life = 24 * time.Hour

// A Record is what a request has led to: a response, or an answer.
type Record struct {
	Fingerprint string           `json:"fingerprint"` // of the request
	Response    berth.ResponseID `json:"response,omitempty"`
	Server      string           `json:"server,omitempty"` // that creates Response; empty without a cluster
	Status      int              `json:"status,omitempty"`
	ContentType string           `json:"content_type,omitempty"`
	Answer      []byte           `json:"answer,omitempty"` // sealed
}

// Records stores records by the ids of requests. It is safe for concurrent use.
type Records struct{ objects store.Objects }

// New returns records in a store.
func New(objects store.Objects) *Records { return &Records{objects} }

func keyOf(id string) store.ObjectKey { return store.ObjectKey{Kind: Kind, ID: id} }

// Find returns the record of a request, or nil.
func (s *Records) Find(ctx context.Context, p berth.ProjectID, id string) (*Record, error) {
	o, err := s.objects.GetObject(ctx, p, keyOf(id))
	if errors.Is(err, store.ErrNotFound) || err == nil && o.ExpiresAt <= time.Now().Unix() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of an Idempotency-Key: %w", err)
	}
	return decode(o)
}

func decode(o *store.Object) (*Record, error) {
	var r Record
	if err := json.Unmarshal(o.Body, &r); err != nil {
		return nil, fmt.Errorf("decode record of an Idempotency-Key: %w", err)
	}
	return &r, nil
}

// Save stores the record of a request. It reports false if there is one that has not expired.
func (s *Records) Save(ctx context.Context, p berth.ProjectID, id string, r Record) (saved bool, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	now := time.Now()
	o := &store.Object{ObjectKey: keyOf(id), CreatedAt: now.Unix(), ExpiresAt: now.Add(Life).Unix(), Body: body}
	err = s.objects.CreateObjects(ctx, p, o)
	if errors.Is(err, store.ErrExists) {
		_, err = s.objects.UpdateObject(ctx, p, o.ObjectKey, func(old *store.Object) error {
			if old.ExpiresAt > now.Unix() {
				return store.ErrExists
			}
			old.ExpiresAt, old.Body = o.ExpiresAt, o.Body
			return nil
		})
	}
	if errors.Is(err, store.ErrExists) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("save record of an Idempotency-Key: %w", err)
	}
	return true, nil
}

// Change changes the record of a request, unless it names another response than was.
func (s *Records) Change(ctx context.Context, p berth.ProjectID, id string, was berth.ResponseID,
	change func(*Record)) error {
	_, err := s.objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) error {
		now, err := decode(o)
		if err != nil || now.Response != was {
			return err
		}
		change(now)
		o.Body, err = json.Marshal(now)
		return err
	})
	if err != nil {
		return fmt.Errorf("change record of an Idempotency-Key: %w", err)
	}
	return nil
}
