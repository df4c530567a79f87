package store

import (
	"context"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// A UsageKind is a kind of usage.
type UsageKind string

const (
	UsageResponse  UsageKind = "response"  // responses and their tokens, by model
	UsageContainer UsageKind = "container" // containers and their seconds, by memory limit
	UsageUpstream  UsageKind = "upstream"  // as UsageResponse, by upstream and its model

	UsageEmbedding  UsageKind = "embedding"  // requests for embeddings and their tokens, by model
	UsageModeration UsageKind = "moderation" // the same for moderations
	UsageImage      UsageKind = "image"      // the same for generated images
	UsageTool       UsageKind = "tool"       // calls of tools, by the type of the tool
)

// A Usage is the usage of a project in an interval, with one API key.
type Usage struct {
	Project berth.ProjectID
	Kind    UsageKind
	Key     berth.KeyID // empty without keys
	Name    string      // the model, the container's memory limit, UPSTREAM/MODEL, or the tool
	Start   int64       // of the interval, in Unix seconds

	Count           int64 // ended responses, created containers, turns, or calls
	InputTokens     int64
	CachedTokens    int64 // of the input
	OutputTokens    int64
	ReasoningTokens int64        // of the output
	Seconds         int64        // of containers
	Cost            berth.Amount // of priced usage, in the currency of the configuration
}

// ResponseUsage returns the usage of a response that ends as body: one of kind UsageResponse, one of UsageUpstream for
// each upstream that it names, and one of UsageTool for each tool that its output has called.
func ResponseUsage(p berth.ProjectID, key berth.KeyID, body *berth.Response, at time.Time) []*Usage {
	var total berth.Usage
	if body.Usage != nil {
		total = *body.Usage
	}
	var turns []berth.UpstreamUsage
	if body.Berth != nil {
		turns = body.Berth.Usage
	}
	all := requestUsage(p, key, UsageResponse, body.Model, total, turns, at)
	cost, _ := body.Cost()
	all[0].Cost = cost.Value
	return append(all, toolUsage(p, key, body.Output, at)...)
}

// toolUsage returns the usage of the tools that an output has called, in the order of their first calls.
func toolUsage(p berth.ProjectID, key berth.KeyID, output []berth.Item, at time.Time) (all []*Usage) {
	for _, it := range output {
		tool := it.Tool()
		if tool == "" {
			continue
		}
		n := slices.IndexFunc(all, func(u *Usage) bool { return u.Name == tool })
		if n < 0 {
			n = len(all)
			all = append(all, &Usage{Project: p, Kind: UsageTool, Key: key, Name: tool, Start: UsageMinute(at)})
		}
		all[n].Count++
	}
	return all
}

// ForwardedUsage returns the usage of a request that was forwarded to an upstream: one of
// kind, and one of UsageUpstream if the upstream has a name.
func ForwardedUsage(c berth.Caller, kind UsageKind, model string, t berth.Usage, turns []berth.UpstreamUsage,
	at time.Time) []*Usage {
	all := requestUsage(c.Project, c.Key, kind, model, t, turns, at)
	for _, of := range all[1:] {
		all[0].Cost += of.Cost
	}
	return all
}

// requestUsage returns the usage of a request without its cost, and that of its turns.
func requestUsage(p berth.ProjectID, key berth.KeyID, kind UsageKind, model string, total berth.Usage,
	turns []berth.UpstreamUsage, at time.Time) []*Usage {
	of := func(kind UsageKind, name string, count int, t berth.Usage) *Usage {
		return &Usage{Project: p, Kind: kind, Key: key, Name: name, Start: UsageMinute(at), Count: int64(count),
			InputTokens: int64(t.InputTokens), CachedTokens: int64(t.InputTokenDetails.CachedTokens),
			OutputTokens: int64(t.OutputTokens), ReasoningTokens: int64(t.OutputTokenDetails.ReasoningTokens)}
	}
	all := []*Usage{of(kind, model, 1, total)}
	for _, t := range turns {
		u := of(UsageUpstream, t.Upstream+"/"+t.Model, t.Turns, t.Usage)
		if t.Cost != nil {
			u.Cost = t.Cost.Value
		}
		all = append(all, u)
	}
	return all
}

// CreatedUsage returns the usage of creating a container.
func CreatedUsage(c *Container, at time.Time) *Usage {
	return &Usage{Project: c.Project, Kind: UsageContainer, Key: c.Key, Name: c.Body.MemoryLimit,
		Start: UsageMinute(at), Count: 1}
}

// A Running is the data needed to count a container's seconds.
type Running struct {
	Project     berth.ProjectID
	Key         berth.KeyID
	MemoryLimit string
	Counted     int64 // Unix seconds up to which its seconds have been counted
}

// Usage returns the seconds that the container lived from Counted to a time, by hour:
// a server that was down counts more than the last minute. It counts at most the last
// 31 days.
func (r Running) Usage(to int64) []*Usage {
	const hour, month = 3600, 31 * 24 * 3600
	var all []*Usage
	for from := max(r.Counted, to-month); from < to; {
		end := min(to, from-from%hour+hour)
		all = append(all, &Usage{Project: r.Project, Kind: UsageContainer, Key: r.Key, Name: r.MemoryLimit,
			Start: from - from%60, Seconds: end - from})
		from = end
	}
	return all
}

// UsageMinute returns the start of the minute that usage at a time belongs to, in Unix
// seconds.
func UsageMinute(at time.Time) int64 { return at.Unix() - at.Unix()%60 }

// A Spending is what a key of a project has spent in a month.
type Spending struct {
	Project berth.ProjectID
	Key     berth.KeyID // empty without keys
	Cost    berth.Amount
}

// Spending returns the part of a usage that counts as spent. UsageUpstream splits the cost of
// the other kinds, and so counts nothing.
func (u *Usage) Spending() *Spending {
	s := &Spending{Project: u.Project, Key: u.Key}
	if u.Kind != UsageUpstream {
		s.Cost = u.Cost
	}
	return s
}

// Month returns the start of the month (UTC) that a time belongs to, and that of the next.
func Month(at time.Time) (start, next time.Time) {
	at = at.UTC()
	start = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return start, start.AddDate(0, 1, 0)
}

// A UsageQuery selects usage from one time, a whole minute, to before another.
type UsageQuery struct {
	Project  berth.ProjectID // empty means all
	Kind     UsageKind
	From, To time.Time
	Width    time.Duration // of the answer's intervals: whole minutes, aligned to 1970
}

// Usages counts usage. A response is counted with its last event or with its deletion,
// whichever is first. A container is counted when it is created, by CountContainers,
// and when it ends. What a usage spends is added to its month with it. Deleting rows does not change past usage.
// ResponseUsage, CreatedUsage and Running define the amounts. A database adds them in the transaction of the change.
type Usages interface {
	// AddUsage adds usage that the store cannot see to this minute. It ignores
	// u.Start.
	AddUsage(ctx context.Context, u *Usage) error
	// Spent returns what a project and one of its keys have spent in a month, in the
	// currency of the configuration.
	Spent(ctx context.Context, p berth.ProjectID, key berth.KeyID, month time.Time) (ofProject, ofKey berth.Amount,
		err error)
	// Spending returns what the keys of a project have spent in a month, or those of all
	// projects if p is empty, in the order of Project and Key.
	Spending(ctx context.Context, p berth.ProjectID, month time.Time) ([]*Spending, error)
	// Usage returns usage in the order of Start, Project, Key and Name.
	Usage(ctx context.Context, q UsageQuery) ([]*Usage, error)
}
