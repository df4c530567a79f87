// Package usage reports the counted usage of projects in buckets of time and in groups.
package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Kind is the object that is counted.
type Kind string

// The kinds of usage.
const (
	Responses   = Kind(store.UsageResponse)   // and their tokens, by model
	Containers  = Kind(store.UsageContainer)  // and their seconds
	Upstreams   = Kind(store.UsageUpstream)   // as Responses, by upstream and its model
	Embeddings  = Kind(store.UsageEmbedding)  // and their tokens, by model
	Moderations = Kind(store.UsageModeration) // and their tokens, by model
	Tools       = Kind(store.UsageTool)       // and their calls, by tool
)

// The fields by which a Query groups.
const (
	ByProject  = "project_id"
	ByKey      = "api_key_id"
	ByModel    = "model"
	ByTool     = "tool"
	ByLineItem = "line_item" // UPSTREAM/MODEL
)

// A Query selects usage of one kind. An empty filter means any value.
type Query struct {
	Project  berth.ProjectID // whose usage may be seen; empty means all
	Kind     Kind
	From, To time.Time
	Width    time.Duration // of the buckets: whole minutes, aligned to 1970

	Projects, Keys, Models []string // filters; a tool is in the place of a model
	Groups                 []string
}

// A Group is the usage in a bucket with the same values of the fields by which the query groups. The others are empty.
type Group struct {
	Project, Key, Name string // Name is a model, a tool or a line item

	Count           int64 // ended responses, created containers, requests, turns or calls
	InputTokens     int64
	CachedTokens    int64 // of the input
	OutputTokens    int64
	ReasoningTokens int64 // of the output
	Cost            berth.Amount
	Seconds         map[string]int64 // run time of containers by memory limit
}

// A Bucket is the usage in an interval.
type Bucket struct {
	Start  time.Time
	Groups []*Group
}

// A Reader reads counted usage. It is safe for concurrent use.
type Reader struct{ counted store.Usages }

// New returns a reader of a store's usage.
func New(counted store.Usages) *Reader { return &Reader{counted} }

// Report returns the buckets of a query, also those without usage.
func (r *Reader) Report(ctx context.Context, q Query) ([]Bucket, error) {
	all, err := r.counted.Usage(ctx, store.UsageQuery{Project: q.Project, Kind: store.UsageKind(q.Kind), From: q.From,
		To: q.To, Width: q.Width})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	var buckets []Bucket
	for start := q.From; start.Before(q.To); start = start.Add(q.Width) {
		b := Bucket{Start: start}
		for len(all) > 0 && all[0].Start == start.Unix() {
			b.add(&q, all[0])
			all = all[1:]
		}
		buckets = append(buckets, b)
	}
	return buckets, nil
}

// add adds usage to its group, unless a filter excludes it.
func (b *Bucket) add(q *Query, u *store.Usage) {
	fits := func(of []string, s string) bool { return len(of) == 0 || slices.Contains(of, s) }
	if !fits(q.Projects, string(u.Project)) || !fits(q.Keys, string(u.Key)) || !fits(q.Models, u.Name) {
		return
	}
	of := Group{Seconds: map[string]int64{}}
	if slices.Contains(q.Groups, ByProject) {
		of.Project = string(u.Project)
	}
	if slices.Contains(q.Groups, ByKey) {
		of.Key = string(u.Key)
	}
	if slices.ContainsFunc(q.Groups, func(g string) bool { return g == ByModel || g == ByTool || g == ByLineItem }) {
		of.Name = u.Name
	}
	n := slices.IndexFunc(b.Groups, func(g *Group) bool {
		return g.Project == of.Project && g.Key == of.Key && g.Name == of.Name
	})
	if n < 0 {
		n = len(b.Groups)
		b.Groups = append(b.Groups, &of)
	}
	g := b.Groups[n]
	g.Count += u.Count
	g.InputTokens += u.InputTokens
	g.CachedTokens += u.CachedTokens
	g.OutputTokens += u.OutputTokens
	g.ReasoningTokens += u.ReasoningTokens
	g.Cost += u.Cost
	if u.Kind == store.UsageContainer {
		g.Seconds[u.Name] += u.Seconds
	}
}
