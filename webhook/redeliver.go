package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Redeliver sends a delivery once more, under its id, and returns it as pending. A delivery that is
// pending is sent now.
func (s *Service) Redeliver(ctx context.Context, p berth.ProjectID, to berth.WebhookID, id string) (*Delivery, error) {
	if _, err := s.get(ctx, p, to); err != nil {
		return nil, err
	}
	key := store.ObjectKey{Kind: KindDelivery, Parent: string(to), ID: id}
	o, err := s.objects.UpdateObject(ctx, p, key, func(o *store.Object) error {
		d, err := decodeDelivery(o)
		if err != nil {
			return err
		}
		d.Status, o.ExpiresAt = Pending, time.Now().Unix()
		o.Body, err = json.Marshal(d)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Webhook delivery", id)
	}
	if err != nil {
		return nil, fmt.Errorf("update webhook delivery: %w", err)
	}
	return decodeDelivery(o)
}
