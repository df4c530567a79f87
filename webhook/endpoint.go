// Package webhook sends the ends of background responses and of batches, and the changes of sandboxes, to
// the endpoints of projects.
//
// A delivery is saved with the response's last event, before a batch's job ends, or with the event of a sandbox. It is
// retried, across restarts, until the endpoint accepts it. Payloads and signatures are those of OpenAI, which follow
// the Standard Webhooks specification. Those of sandboxes are E2B's.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/store"
)

// KindEndpoint is the kind of endpoints in the store.
const KindEndpoint = store.KindEndpoint

const (
	maxEndpoints = 20   // per project
	maxURL       = 2048 // bytes
	// oldSecretTTL is how long a replaced secret still signs, if the client requests it.
	oldSecretTTL = 24 * time.Hour
)

// EventTypes are the events that endpoints can receive.
var EventTypes = []berth.EventType{berth.EventCompleted, berth.EventFailed, berth.EventIncomplete, berth.EventCancelled,
	berth.EventBatchCompleted, berth.EventBatchFailed, berth.EventBatchExpired, berth.EventBatchCancelled}

// SandboxEventTypes are the events that endpoints of E2B's API can receive.
var SandboxEventTypes = []berth.EventType{berth.EventSandboxCreated, berth.EventSandboxUpdated,
	berth.EventSandboxPaused,
	berth.EventSandboxResumed, berth.EventSandboxCheckpointed, berth.EventSandboxKilled}

// A Service stores endpoints and, once started, delivers events to them. It is safe for
// concurrent use.
type Service struct {
	objects store.Objects
	log     *slog.Logger
	sender  sender

	anywhere, public *http.Client // see newClient
}

// New returns a service that stores endpoints and deliveries in objects. It sends through the proxies, which may be
// nil.
func New(objects store.Objects, proxies *proxy.Selector, log *slog.Logger) *Service {
	return &Service{objects: objects, log: log, sender: newSender(), anywhere: newClient(false, proxies),
		public: newClient(true, proxies)}
}

// endpoint is the stored form of an endpoint.
type endpoint struct {
	berth.WebhookEndpoint
	Secret   string `json:"secret"`
	Old      string `json:"old_secret,omitempty"` // signs too, until OldUntil
	OldUntil int64  `json:"old_until,omitempty"`  // Unix seconds
	Anywhere bool   `json:"anywhere,omitempty"`   // may be on a private network
}

// An EndpointRequest describes a new endpoint or changes to one. Nil fields do not change.
type EndpointRequest struct {
	Name       *string           `json:"name"`
	URL        *string           `json:"url"`
	EventTypes []berth.EventType `json:"event_types"`

	// Anywhere is set for the operator's endpoints only. Such an endpoint may be on a
	// private network and use plain http. Other endpoints must use https and a public
	// address, or projects could make the server send requests to its own network.
	Anywhere bool `json:"-"`

	// The fields of E2B's API. Sandboxes is set for its endpoints, which receive SandboxEventTypes only.
	Sandboxes bool    `json:"-"`
	Secret    *string `json:"-"` // nil: a new endpoint gets a random one
	Enabled   *bool   `json:"-"`
}

// types returns the types of events that an endpoint can receive, and the name of their parameter.
func (req *EndpointRequest) types() ([]berth.EventType, string) {
	if req.Sandboxes {
		return SandboxEventTypes, "events"
	}
	return EventTypes, "event_types"
}

// apply checks a request and changes the endpoint.
func (e *endpoint) apply(req EndpointRequest) error {
	if req.URL != nil {
		u, err := url.Parse(*req.URL)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || len(*req.URL) > maxURL:
			return berth.Invalid("url",
				"Invalid 'url': expected an absolute URL of at most %d characters, without a name, password or fragment.",
				maxURL)
		case u.Scheme != "https" && !(u.Scheme == "http" && req.Anywhere):
			if req.Anywhere {
				return berth.Invalid("url", "Invalid 'url': expected an http or https URL.")
			}
			return berth.Invalid("url", "Invalid 'url': expected an https URL.")
		}
		if err := checkHost(u, req.Anywhere); err != nil {
			return err
		}
		e.URL, e.Anywhere = *req.URL, req.Anywhere
	}
	if req.Name != nil {
		e.Name = *req.Name
	}
	if req.EventTypes != nil {
		known, name := req.types()
		if len(req.EventTypes) == 0 {
			return berth.Invalid(name,
				"Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.",
				name)
		}
		for i, t := range req.EventTypes {
			if !slices.Contains(known, t) {
				return berth.Invalid(fmt.Sprintf("%s[%d]", name, i), "Invalid value: '%s'. Supported values are: %s.",
					t, words(known))
			}
		}
		e.EventTypes = slices.Compact(slices.Sorted(slices.Values(req.EventTypes)))
	}
	if req.Secret != nil {
		e.setSecret(*req.Secret)
	}
	if req.Enabled != nil {
		e.Disabled = !*req.Enabled
	}
	return nil
}

// checkHost refuses a port that does not exist, and an address to which deliveries would not be sent. What a name
// resolves to is checked at each delivery.
func checkHost(u *url.URL, anywhere bool) error {
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return berth.Invalid("url", "Invalid 'url': expected a port from 1 to 65535, but got '%s'.", port)
		}
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !anywhere && !reachable(a) {
		return berth.Invalid("url",
			"Invalid 'url': webhooks are sent to public addresses only, and '%s' is not one. The operator of this server can create the endpoint with 'berth webhook create'.", a)
	}
	return nil
}

func words(types []berth.EventType) (s string) {
	for i, t := range types {
		if i > 0 {
			s += ", "
		}
		s += "'" + string(t) + "'"
	}
	return s
}

// Create stores a new endpoint and returns it with its secret.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, req EndpointRequest) (*berth.WebhookEndpoint, error) {
	list, _, err := s.List(ctx, p, store.Page{Limit: maxEndpoints})
	if err != nil {
		return nil, err
	}
	if len(list) >= maxEndpoints {
		return nil, berth.Errorf(berth.CodeInvalid,
			"The project has reached the limit of %d webhook endpoints. Delete one that is no longer needed.",
			maxEndpoints)
	}
	now := time.Now().Unix()
	id := berth.NewID(berth.PrefixWebhook)
	if req.Sandboxes {
		id = berth.UUID(id)
	}
	e := &endpoint{WebhookEndpoint: berth.WebhookEndpoint{ID: berth.WebhookID(id), Object: "webhook_endpoint",
		CreatedAt: now, UpdatedAt: now}}
	e.renew(false)
	if err := e.apply(req); err != nil {
		return nil, err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if err := s.objects.CreateObjects(ctx, p, &store.Object{ObjectKey: endpointKey(e.ID), CreatedAt: now,
		Body: body}); err != nil {
		return nil, err
	}
	e.SigningSecret = e.Secret
	return &e.WebhookEndpoint, nil
}

func endpointKey(id berth.WebhookID) store.ObjectKey {
	return store.ObjectKey{Kind: KindEndpoint, ID: string(id)}
}

// renew replaces the endpoint's secret. If keep is true, the old one still signs for
// oldSecretTTL.
func (e *endpoint) renew(keep bool) {
	e.Old, e.OldUntil = "", 0
	if keep {
		e.Old, e.OldUntil = e.Secret, time.Now().Add(oldSecretTTL).Unix()
	}
	e.Secret = newSecret()
	e.SigningSecretHint = "…" + e.Secret[len(e.Secret)-4:]
}

// setSecret sets the secret that a client chose. It has no hint, which would be a large part of a short one.
func (e *endpoint) setSecret(secret string) {
	e.Secret, e.Old, e.OldUntil, e.SigningSecretHint = secret, "", 0, ""
}

func (s *Service) get(ctx context.Context, p berth.ProjectID, id berth.WebhookID) (*endpoint, error) {
	o, err := s.objects.GetObject(ctx, p, endpointKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Webhook endpoint", id)
	}
	if err != nil {
		return nil, err
	}
	return decode(o)
}

func decode(o *store.Object) (*endpoint, error) {
	e := &endpoint{}
	if err := json.Unmarshal(o.Body, e); err != nil {
		return nil, fmt.Errorf("decode endpoint: %w", err)
	}
	return e, nil
}

// Get returns an endpoint.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.WebhookID) (*berth.WebhookEndpoint, error) {
	e, err := s.get(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return &e.WebhookEndpoint, nil
}

// List returns one page of endpoints and whether there are more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.WebhookEndpoint, bool,
	error) {
	objects, more, err := s.objects.ListObjects(ctx, p, KindEndpoint, "", page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*berth.WebhookEndpoint, len(objects))
	for i, o := range objects {
		e, err := decode(o)
		if err != nil {
			return nil, false, err
		}
		list[i] = &e.WebhookEndpoint
	}
	return list, more, nil
}

// Update changes the fields of an endpoint that the request sets.
func (s *Service) Update(ctx context.Context, p berth.ProjectID, id berth.WebhookID,
	req EndpointRequest) (*berth.WebhookEndpoint, error) {
	e, err := s.change(ctx, p, id, func(e *endpoint) error {
		req.Sandboxes = e.OfSandboxes()
		return e.apply(req)
	})
	if err != nil {
		return nil, err
	}
	return &e.WebhookEndpoint, nil
}

// RotateSecret replaces the secret of an endpoint and returns the endpoint with the new
// one. If keep is true, the old one still signs for a day.
func (s *Service) RotateSecret(ctx context.Context, p berth.ProjectID, id berth.WebhookID,
	keep bool) (*berth.WebhookEndpoint, error) {
	e, err := s.change(ctx, p, id, func(e *endpoint) error {
		if e.OfSandboxes() {
			return berth.Invalid("",
				"The secret of an endpoint of E2B's API is the client's. Change it with 'PATCH /events/webhooks/%s'.", id)
		}
		e.renew(keep)
		return nil
	})
	if err != nil {
		return nil, err
	}
	e.SigningSecret = e.Secret
	return &e.WebhookEndpoint, nil
}

func (s *Service) change(ctx context.Context, p berth.ProjectID, id berth.WebhookID,
	change func(*endpoint) error) (e *endpoint, err error) {
	_, err = s.objects.UpdateObject(ctx, p, endpointKey(id), func(o *store.Object) error {
		if e, err = decode(o); err != nil {
			return err
		}
		if err := change(e); err != nil {
			return err
		}
		e.UpdatedAt = time.Now().Unix()
		o.Body, err = json.Marshal(e)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Webhook endpoint", id)
	}
	return e, err
}

// Delete deletes an endpoint with its log and its pending deliveries.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.WebhookID) error {
	err := s.objects.DeleteObject(ctx, p, endpointKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Webhook endpoint", id)
	}
	return err
}
