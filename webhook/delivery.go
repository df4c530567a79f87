package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// KindDelivery is the kind of deliveries in the store. The parent of a delivery is its
// endpoint. The expiry of a pending delivery is the time of its next attempt; that of a
// finished one is the time of its deletion.
const KindDelivery = store.KindDelivery

const (
	retryTime = 72 * time.Hour     // from creation to the last attempt
	firstWait = 5 * time.Second    // before the second attempt; each further wait is three times as long
	maxWait   = 4 * time.Hour      // maximum wait
	logTime   = 7 * 24 * time.Hour // for which finished deliveries are stored
)

// A Delivery is an event for an endpoint, with the attempts to deliver it.
type Delivery struct {
	ID        string          `json:"id"` // wh_…, the webhook-id of every attempt
	CreatedAt int64           `json:"created_at"`
	Type      berth.EventType `json:"type"`
	Payload   json.RawMessage `json:"payload"` // a berth.WebhookEvent or berth.SandboxEvent
	Status    Status          `json:"status"`
	DueAt     int64           `json:"-"` // while it is pending: the next attempt, in Unix seconds
	Attempts  []Attempt       `json:"attempts"`
}

// A Status is the state of a delivery.
type Status string

const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	Failed    Status = "failed" // given up
)

// An Attempt is one request to the endpoint.
type Attempt struct {
	At           int64  `json:"at"` // Unix seconds
	Milliseconds int64  `json:"milliseconds"`
	Status       int    `json:"status,omitempty"` // HTTP status of the answer; 0 without an answer
	Error        string `json:"error,omitempty"`
}

// AtEnd returns the deliveries to save with the last event of a response. It implements
// journal.AtEnd. Only background responses have deliveries, as at OpenAI.
func (s *Service) AtEnd(r *store.Response, final *berth.Response) []*store.Object {
	kind := map[berth.Status]berth.EventType{berth.StatusCompleted: berth.EventCompleted,
		berth.StatusFailed:     berth.EventFailed,
		berth.StatusIncomplete: berth.EventIncomplete, berth.StatusCancelled: berth.EventCancelled}[final.Status]
	if !final.Background || kind == "" {
		return nil
	}
	out, err := s.deliveries(context.Background(), r.Project, kind, string(final.ID), func(berth.WebhookID) string {
		return berth.NewID(berth.PrefixDelivery)
	})
	if err != nil {
		s.log.Error("failed to list webhook endpoints; no webhook is sent", "response", final.ID, "request_id",
			r.RequestID, "err", err)
	}
	return out
}

// BatchEnded saves the deliveries about a batch that has its last status. It may be called
// again after an error or a crash: the deliveries are saved once.
func (s *Service) BatchEnded(ctx context.Context, p berth.ProjectID, b *berth.Batch) error {
	kind := map[berth.BatchStatus]berth.EventType{berth.BatchCompleted: berth.EventBatchCompleted,
		berth.BatchFailed:  berth.EventBatchFailed,
		berth.BatchExpired: berth.EventBatchExpired, berth.BatchCancelled: berth.EventBatchCancelled}[b.Status]
	list, err := s.deliveries(ctx, p, kind, string(b.ID), func(to berth.WebhookID) string {
		sum := sha256.Sum256([]byte(string(to) + "\x00" + string(b.ID)))
		return berth.PrefixDelivery + hex.EncodeToString(sum[:24])
	})
	if err != nil {
		return fmt.Errorf("list webhook endpoints: %w", err)
	}
	for _, o := range list {
		if err := s.objects.CreateObjects(ctx, p, o); err != nil && !errors.Is(err, store.ErrExists) {
			return fmt.Errorf("save webhook delivery: %w", err)
		}
	}
	return nil
}

// deliveries returns the deliveries of an event to the endpoints for its type. id returns the
// id of the delivery to an endpoint.
func (s *Service) deliveries(ctx context.Context, p berth.ProjectID, kind berth.EventType, about string,
	id func(berth.WebhookID) string) ([]*store.Object, error) {
	objects, _, err := s.objects.ListObjects(ctx, p, KindEndpoint, "", store.Page{Limit: 2 * maxEndpoints,
		Ascending: true})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	// strings and numbers always marshal; shared by all endpoints
	payload, _ := json.Marshal(newEvent(kind, about, now))
	var out []*store.Object
	for _, e := range receivers(objects, kind) {
		out = append(out, newDelivery(id(e.ID), e.ID, kind, payload, now))
	}
	return out, nil
}

// receivers returns those of some endpoints that are enabled and receive events of a type.
func receivers(objects []*store.Object, kind berth.EventType) (found []*endpoint) {
	for _, o := range objects {
		if e, err := decode(o); err == nil && !e.Disabled && slices.Contains(e.EventTypes, kind) {
			found = append(found, e)
		}
	}
	return found
}

// SandboxEvent returns the deliveries to save with an event of a sandbox.
func (s *Service) SandboxEvent(ctx context.Context, p berth.ProjectID, event *berth.SandboxEvent) ([]*store.Object,
	error) {
	objects, _, err := s.objects.ListObjects(ctx, p, KindEndpoint, "", store.Page{Limit: 2 * maxEndpoints,
		Ascending: true})
	if err != nil {
		return nil, fmt.Errorf("list webhook endpoints: %w", err)
	}
	to := receivers(objects, event.Type)
	if len(to) == 0 {
		return nil, nil
	}
	payload, err := json.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	out := make([]*store.Object, len(to))
	for i, e := range to {
		out[i] = newDelivery(berth.NewID(berth.PrefixDelivery), e.ID, event.Type, payload, time.Now())
	}
	return out, nil
}

func newEvent(kind berth.EventType, about string, now time.Time) *berth.WebhookEvent {
	return &berth.WebhookEvent{ID: berth.NewID(berth.PrefixEvent), Object: "event", CreatedAt: now.Unix(), Type: kind,
		Data: berth.WebhookEventData{ID: about}}
}

func newDelivery(id string, to berth.WebhookID, kind berth.EventType, payload []byte, now time.Time) *store.Object {
	d := &Delivery{ID: id, CreatedAt: now.Unix(), Type: kind, Payload: payload, Status: Pending}
	body, _ := json.Marshal(d)
	return &store.Object{ObjectKey: store.ObjectKey{Kind: KindDelivery, Parent: string(to), ID: d.ID},
		CreatedAt: d.CreatedAt, ExpiresAt: now.Unix(), Body: body}
}

// attempted records an attempt and sets the delivery's status and next attempt.
func (d *Delivery) attempted(a Attempt, ok bool, now time.Time) {
	d.Attempts = append(d.Attempts, a)
	wait := retryDelay(len(d.Attempts))
	switch {
	case ok:
		d.Status = Delivered
	case now.Add(wait).Unix() > d.CreatedAt+int64(retryTime/time.Second):
		d.Status = Failed
	default:
		d.DueAt = now.Add(wait).Unix()
	}
}

// retryDelay returns the wait after a number of attempts. It is longer by a random part of
// up to a fifth, so that simultaneous failures are not retried simultaneously.
func retryDelay(attempts int) time.Duration {
	wait := firstWait
	for range attempts - 1 {
		wait = min(3*wait, maxWait)
	}
	return wait + rand.N(wait/5)
}

// Log returns one page of an endpoint's deliveries and whether there is more.
func (s *Service) Log(ctx context.Context, p berth.ProjectID, id berth.WebhookID, page store.Page) ([]*Delivery, bool,
	error) {
	if _, err := s.get(ctx, p, id); err != nil {
		return nil, false, err
	}
	objects, more, err := s.objects.ListObjects(ctx, p, KindDelivery, string(id), page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*Delivery, len(objects))
	for i, o := range objects {
		if list[i], err = decodeDelivery(o); err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
}

func decodeDelivery(o *store.Object) (*Delivery, error) {
	d := &Delivery{}
	if err := json.Unmarshal(o.Body, d); err != nil {
		return nil, fmt.Errorf("decode delivery: %w", err)
	}
	if d.Status == Pending {
		d.DueAt = o.ExpiresAt
	}
	return d, nil
}

// deliver makes one attempt, or deletes a finished delivery.
func (s *Service) deliver(ctx context.Context, ref store.ObjectRef) error {
	o, err := s.objects.GetObject(ctx, ref.Project, ref.ObjectKey)
	if err != nil {
		return ignoreNotFound(err) // it was deleted with its endpoint
	}
	d, err := decodeDelivery(o)
	if err != nil {
		return err
	}
	if d.Status != Pending {
		return ignoreNotFound(s.objects.DeleteObject(ctx, ref.Project, ref.ObjectKey))
	}
	e, err := s.get(ctx, ref.Project, berth.WebhookID(ref.Parent))
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if e.Disabled {
		return s.giveUp(ctx, ref)
	}
	start := time.Now()
	status, failure := s.post(berth.WithProject(ctx, ref.Project), e, d)
	if ctx.Err() != nil {
		return nil // the server is stopping; the attempt is repeated after the next start
	}
	a := Attempt{At: start.Unix(), Milliseconds: time.Since(start).Milliseconds(), Status: status}
	if failure != nil {
		a.Error = failure.Error()
		s.log.Warn("webhook delivery failed", "project", ref.Project, "endpoint", e.ID, "delivery", d.ID, "attempt",
			len(d.Attempts)+1, "err", failure)
	}
	_, err = s.objects.UpdateObject(ctx, ref.Project, ref.ObjectKey, func(o *store.Object) error {
		d, err := decodeDelivery(o)
		if err != nil {
			return err
		}
		now := time.Now()
		d.attempted(a, failure == nil, now)
		o.ExpiresAt = d.DueAt
		if d.Status != Pending {
			o.ExpiresAt = now.Add(logTime).Unix()
		}
		o.Body, err = json.Marshal(d)
		return err
	})
	return ignoreNotFound(err)
}

// giveUp ends a delivery without another attempt.
func (s *Service) giveUp(ctx context.Context, ref store.ObjectRef) error {
	_, err := s.objects.UpdateObject(ctx, ref.Project, ref.ObjectKey, func(o *store.Object) error {
		d, err := decodeDelivery(o)
		if err != nil {
			return err
		}
		d.Status, o.ExpiresAt = Failed, time.Now().Add(logTime).Unix()
		o.Body, err = json.Marshal(d)
		return err
	})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
