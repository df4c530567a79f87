package threads

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// An Assistant is a configuration for runs. Its JSON is also the body of the requests that
// create and modify one, which lack id, object and created_at.
type Assistant struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"` // "assistant"
	CreatedAt       int64             `json:"created_at"`
	Name            *string           `json:"name"`
	Description     *string           `json:"description"`
	Model           string            `json:"model"`
	Instructions    *string           `json:"instructions"`
	Tools           []berth.Tool      `json:"tools"`
	ToolResources   Resources         `json:"tool_resources"`
	Metadata        map[string]string `json:"metadata"`
	Temperature     *float64          `json:"temperature"` // null means the model's default
	TopP            *float64          `json:"top_p"`
	ResponseFormat  json.RawMessage   `json:"response_format"`
	ReasoningEffort *string           `json:"reasoning_effort"`
}

// complete sets the defaults.
func (a *Assistant) complete() {
	a.Object = string(kindAssistant)
	a.Tools, a.Metadata = orEmpty(a.Tools), orEmptyMap(a.Metadata)
	a.ToolResources.complete()
	a.ResponseFormat = orRaw(a.ResponseFormat, `"auto"`)
}

func assistantKey(id string) store.ObjectKey { return store.ObjectKey{Kind: kindAssistant, ID: id} }

// A Catalog stores assistants. It is safe for concurrent use.
type Catalog struct {
	objects   store.Objects
	resources *resourceStore
	now       func() time.Time
}

// Create stores a new assistant, with the vector stores that its resources describe.
func (l *Catalog) Create(ctx context.Context, p berth.ProjectID, a *Assistant) (_ *Assistant, err error) {
	var made newStores
	defer func() { l.resources.discard(ctx, p, made, err) }()
	if err := l.resources.resolve(ctx, p, &a.ToolResources, "tool_resources", &made); err != nil {
		return nil, err
	}
	a.ID, a.CreatedAt = berth.NewID(prefixAssistant), l.now().Unix()
	a.complete()
	o, err := objectOf(kindAssistant, "", a.ID, a.CreatedAt, a)
	if err != nil {
		return nil, err
	}
	return a, l.objects.CreateObjects(ctx, p, o)
}

// Get returns an assistant.
func (l *Catalog) Get(ctx context.Context, p berth.ProjectID, id string) (*Assistant, error) {
	return get[Assistant](ctx, l.objects, p, assistantKey(id))
}

// List returns one page of the assistants and whether there are more.
func (l *Catalog) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*Assistant, bool, error) {
	return list[Assistant](ctx, l.objects, p, kindAssistant, "", page)
}

// Update sets the fields of a request. It does not affect existing runs.
func (l *Catalog) Update(ctx context.Context, p berth.ProjectID, id string,
	request json.RawMessage) (*Assistant, error) {
	var resources struct {
		ToolResources Resources `json:"tool_resources"`
	}
	if err := json.Unmarshal(request, &resources); err != nil {
		return nil, fmt.Errorf("decode tool_resources: %w", err)
	}
	if err := l.resources.resolve(ctx, p, &resources.ToolResources, "tool_resources", nil); err != nil {
		return nil, err
	}
	return update(ctx, l.objects, p, assistantKey(id), func(a *Assistant) error {
		changed, err := patched(a, request, "model", "metadata")
		if err != nil {
			return err
		}
		*a = *changed
		a.complete()
		return nil
	})
}

// Delete removes an assistant, but not its runs and their messages.
func (l *Catalog) Delete(ctx context.Context, p berth.ProjectID, id string) error {
	return remove(ctx, l.objects, p, assistantKey(id))
}
