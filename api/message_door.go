package api

import "github.com/berth-run/berth/api/messages"

// newMessages returns the door of Anthropic's Messages API.
func newMessages(o Options) *messages.Door {
	opts := messages.Options{Engine: o.Engine, Journal: o.Journal, Models: o.Models.Models,
		Batches: o.Batches.Messages(), Files: o.Files, Skills: o.Skills}
	if o.Containers != nil {
		opts.Containers, opts.Outputs = o.Containers, o.Containers.Files()
	}
	return messages.New(opts)
}
