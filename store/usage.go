package store

import (
	"context"
	"time"

	"github.com/berth-run/berth"
)

// A UsageKind says what was used.
type UsageKind string

const (
	UsageResponse  UsageKind = "response"  // responses and their tokens, by model
	UsageContainer UsageKind = "container" // containers and their seconds, by memory limit
	UsageUpstream  UsageKind = "upstream"  // the same as of responses, by upstream and its model
)

// A Usage is what a project has used of something in a time, with one key.
type Usage struct {
	Project berth.ProjectID
	Kind    UsageKind
	Key     berth.KeyID // empty without keys
	Name    string      // the model, the container's memory limit, or UPSTREAM/MODEL
	Start   int64       // of the time, in Unix seconds

	Count           int64 // responses that have ended, containers that were made, or turns
	InputTokens     int64
	CachedTokens    int64 // of the input
	OutputTokens    int64
	ReasoningTokens int64        // of the output
	Seconds         int64        // of containers
	Cost            berth.Amount // of what has a price, in the currency of the configuration
}

// ResponseUsage returns what is counted at a time for a response that ends as body: one
// of kind UsageResponse, and one of UsageUpstream for each upstream that it names.
func ResponseUsage(p berth.ProjectID, key berth.KeyID, body *berth.Response, at time.Time) []*Usage {
	of := func(kind UsageKind, name string, count int, t berth.Usage) *Usage {
		return &Usage{Project: p, Kind: kind, Key: key, Name: name, Start: UsageMinute(at), Count: int64(count),
			InputTokens: int64(t.InputTokens), CachedTokens: int64(t.InputTokenDetails.CachedTokens),
			OutputTokens: int64(t.OutputTokens), ReasoningTokens: int64(t.OutputTokenDetails.ReasoningTokens)}
	}
	var total berth.Usage
	if body.Usage != nil {
		total = *body.Usage
	}
	all := []*Usage{of(UsageResponse, body.Model, 1, total)}
	cost, _ := body.Cost()
	all[0].Cost = cost.Value
	if body.Berth == nil {
		return all
	}
	for _, t := range body.Berth.Usage {
		u := of(UsageUpstream, t.Upstream+"/"+t.Model, t.Turns, t.Usage)
		if t.Cost != nil {
			u.Cost = t.Cost.Value
		}
		all = append(all, u)
	}
	return all
}

// CreatedUsage returns what is counted at a time for a container that is created.
func CreatedUsage(c *Container, at time.Time) *Usage {
	return &Usage{Project: c.Project, Kind: UsageContainer, Key: c.Key, Name: c.Body.MemoryLimit, Start: UsageMinute(at), Count: 1}
}

// A Running is what a database has of a container to count its seconds.
type Running struct {
	Project     berth.ProjectID
	Key         berth.KeyID
	MemoryLimit string
	Counted     int64 // Unix seconds until which its seconds have been counted
}

// Usage returns what is counted for the life of the container from Counted to a time:
// the seconds of each hour that it was in, because a server that has not run for a while
// finds more than the present. Of more than a month the last one is counted.
func (r Running) Usage(to int64) []*Usage {
	const hour, month = 3600, 31 * 24 * 3600
	var all []*Usage
	for from := max(r.Counted, to-month); from < to; {
		end := min(to, from-from%hour+hour)
		all = append(all, &Usage{Project: r.Project, Kind: UsageContainer, Key: r.Key, Name: r.MemoryLimit, Start: from - from%60, Seconds: end - from})
		from = end
	}
	return all
}

// UsageMinute returns the start of the minute to which usage at a time is counted, in
// Unix seconds.
func UsageMinute(at time.Time) int64 { return at.Unix() - at.Unix()%60 }

// A UsageQuery selects what was used from one time, a whole minute, to before another.
type UsageQuery struct {
	Project  berth.ProjectID // empty is all
	Kind     UsageKind
	From, To time.Time
	Width    time.Duration // of the intervals of the answer: whole minutes, counted from 1970
}

// Usages counts what is used. A response is counted with its last event, or its
// deletion before that; a container with its creation, with its end and by
// CountContainers. Deleting what was counted does not change the past. What is counted
// is up to ResponseUsage, CreatedUsage and Running; a database adds it up in the
// transaction of the change.
type Usages interface {
	// AddUsage counts what the store does not see, at this minute. u.Start is ignored.
	AddUsage(ctx context.Context, u *Usage) error
	// Usage returns what was used, in the order of Start, Project, Key and Name.
	Usage(ctx context.Context, q UsageQuery) ([]*Usage, error)
}
