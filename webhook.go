package berth

// A WebhookEndpoint is a URL that is told of events of its project.
type WebhookEndpoint struct {
	ID                WebhookID   `json:"id"`
	Object            string      `json:"object"` // "webhook_endpoint"
	CreatedAt         int64       `json:"created_at"`
	UpdatedAt         int64       `json:"updated_at"`
	Name              string      `json:"name"`
	URL               string      `json:"url"`
	EventTypes        []EventType `json:"event_types"`
	SigningSecret     string      `json:"signing_secret,omitempty"` // when it is made, and never again
	SigningSecretHint string      `json:"signing_secret_hint"`      // its last characters
}

// A WebhookEvent is what an endpoint is told: which object something has happened
// to. What has, it asks for.
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
