package chat

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// webSearchOptions make the model search the web. In the Responses API they are a tool.
type webSearchOptions struct {
	SearchContextSize string `json:"search_context_size"`
	UserLocation      *struct {
		Approximate berth.WebSearchLocation `json:"approximate"`
	} `json:"user_location"`
}

var webSearchRule = rule.Object(rule.Fields{
	"search_context_size": rule.OneOf("low", "medium", "high"),
	"user_location": rule.Object(rule.Fields{
		"type": rule.OneOf("approximate"),
		"approximate": rule.Object(rule.Fields{
			"country": rule.Text(0, 64), "region": rule.Text(0, 128), "city": rule.Text(0, 128),
			"timezone": rule.Text(0, 64),
		}),
	}, "type", "approximate"),
})

// tool returns the tool of the Responses API.
func (o *webSearchOptions) tool() berth.Tool {
	t := berth.WebSearchTool{Type: berth.ToolWebSearch, SearchContextSize: o.SearchContextSize}
	if o.UserLocation != nil {
		location := o.UserLocation.Approximate
		location.Type = "approximate"
		t.UserLocation = &location
	}
	return berth.NewTool(t)
}
