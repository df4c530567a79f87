package berth

import "strings"

// A WebhookEndpoint is a URL that receives events of its project.
type WebhookEndpoint struct {
	ID            WebhookID   `json:"id"`
	Object        string      `json:"object"` // "webhook_endpoint"
	CreatedAt     int64       `json:"created_at"`
	UpdatedAt     int64       `json:"updated_at"`
	Name          string      `json:"name"`
	URL           string      `json:"url"`
	EventTypes    []EventType `json:"event_types"`
	SigningSecret string      `json:"signing_secret,omitempty"` // only in the answer to its creation
	// the last characters of the secret; empty for one that the client chose
	SigningSecretHint string `json:"signing_secret_hint"`
	Disabled          bool   `json:"disabled,omitempty"` // no events are sent; only endpoints of E2B's API have it
}

// OfSandboxes reports whether the endpoint is one of E2B's API: it receives a SandboxEvent for each change
// of a sandbox, signed as that API has it, and no other events.
func (e *WebhookEndpoint) OfSandboxes() bool {
	return len(e.EventTypes) > 0 && strings.HasPrefix(string(e.EventTypes[0]), "sandbox.")
}

// A WebhookEvent is the body of a delivery. It names the object that changed; the
// endpoint retrieves the object itself.
type WebhookEvent struct {
	ID        string           `json:"id"`     // evt_…
	Object    string           `json:"object"` // "event"
	CreatedAt int64            `json:"created_at"`
	Type      EventType        `json:"type"`
	Data      WebhookEventData `json:"data"`
}

// WebhookEventData names the object of an event.
type WebhookEventData struct {
	ID string `json:"id"`
}
