package engine

import (
	"context"
	"fmt"

	"github.com/berth-run/berth"
)

// mayStore returns a request as its project may make it: with store: false if the project stores no responses. As at
// OpenAI, that refuses no request, and the response says it. A conversation would store the items all the same.
func (e *Engine) mayStore(ctx context.Context, p berth.ProjectID,
	req *berth.ResponseRequest) (*berth.ResponseRequest, error) {
	if e.Stores == nil || !req.Stored() && req.Conversation == nil {
		return req, nil
	}
	stores, err := e.Stores(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read whether %s stores responses: %w", p, err)
	}
	if stores {
		return req, nil
	}
	if req.Conversation != nil {
		return nil, berth.Invalid("conversation",
			"This project does not store responses, so they cannot be in a conversation. "+
				"Send all items of the conversation as 'input'.")
	}
	changed := *req
	changed.Store = new(false)
	return &changed, nil
}
