package api

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// usage serves the usage of projects and its cost.
type usage struct {
	used     store.Usages
	currency string // of costs
}

// A bucketWidth is the duration of usage buckets, with the default and the maximum number
// of buckets on a page.
type bucketWidth struct {
	time.Duration
	limit, most int64
}

var bucketWidths = map[string]bucketWidth{"1m": {time.Minute, 60, 1440}, "1h": {time.Hour, 24, 168},
	"1d": {24 * time.Hour, 7, 31}}

// costWidths are the widths of the buckets of costs.
var costWidths = map[string]bucketWidth{"1d": {24 * time.Hour, 7, 180}}

// A usageRequest is the query of a request for usage. An empty filter means any value.
type usageRequest struct {
	width      time.Duration
	from, to   time.Time // start_time and end_time, extended to whole buckets
	end        int64     // end_time, in Unix seconds
	limit      int64     // number of buckets
	start      time.Time // of the page
	projects   []string
	keys       []string
	models     []string
	groups     []string
	impossible bool // a filter that matches nothing, because Berth has no such usage
}

// A usagePage is one page of buckets.
type usagePage struct {
	Object   string        `json:"object"` // "page"
	Data     []usageBucket `json:"data"`
	HasMore  bool          `json:"has_more"`
	NextPage *string       `json:"next_page"`
}

type usageBucket struct {
	Object    string `json:"object"` // "bucket"
	StartTime int64  `json:"start_time"`
	EndTime   int64  `json:"end_time"`
	Results   []any  `json:"results"`
}

// completionsUsage is the usage of models by a group.
type completionsUsage struct {
	Object              string  `json:"object"`
	InputTokens         int64   `json:"input_tokens"`
	InputCachedTokens   int64   `json:"input_cached_tokens"`
	InputUncachedTokens int64   `json:"input_uncached_tokens"`
	OutputTokens        int64   `json:"output_tokens"`
	InputAudioTokens    int64   `json:"input_audio_tokens"`
	OutputAudioTokens   int64   `json:"output_audio_tokens"`
	NumModelRequests    int64   `json:"num_model_requests"` // responses
	ProjectID           *string `json:"project_id"`
	UserID              *string `json:"user_id"`
	APIKeyID            *string `json:"api_key_id"`
	Model               *string `json:"model"`
	Batch               *bool   `json:"batch"`
	ServiceTier         *string `json:"service_tier"`
	Berth               struct {
		ReasoningTokens int64       `json:"reasoning_tokens"` // of the output
		Cost            *berth.Cost `json:"cost,omitempty"`   // if there is any
	} `json:"berth"`
}

// sessionsUsage is the usage of containers by a group.
type sessionsUsage struct {
	Object      string  `json:"object"`
	NumSessions int64   `json:"num_sessions"` // created containers
	ProjectID   *string `json:"project_id"`
	Berth       struct {
		Seconds map[string]int64 `json:"seconds"` // run time of containers by memory limit
	} `json:"berth"`
}

// completions serves GET /v1/organization/usage/completions. A key sees its own project
// only.
func (h *usage) completions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, store.UsageResponse, []string{"project_id", "user_id", "api_key_id", "model", "batch",
		"service_tier"},
		func(group []string, used []*store.Usage) any {
			u := &completionsUsage{Object: "organization.usage.completions.result"}
			u.ProjectID, u.APIKeyID, u.Model = exchange.OrNull(group[0]), exchange.OrNull(group[1]),
				exchange.OrNull(group[2])
			var cost berth.Amount
			for _, of := range used {
				u.NumModelRequests += of.Count
				u.InputTokens += of.InputTokens
				u.InputCachedTokens += of.CachedTokens
				u.InputUncachedTokens += of.InputTokens - of.CachedTokens
				u.OutputTokens += of.OutputTokens
				u.Berth.ReasoningTokens += of.ReasoningTokens
				cost += of.Cost
			}
			if cost != 0 {
				u.Berth.Cost = &berth.Cost{Value: cost, Currency: cmp.Or(h.currency, "usd")}
			}
			return u
		})
}

// forwardedUsage is the usage of an endpoint that is forwarded, by a group.
type forwardedUsage struct {
	Object           string  `json:"object"`
	InputTokens      int64   `json:"input_tokens"`
	NumModelRequests int64   `json:"num_model_requests"`
	ProjectID        *string `json:"project_id"`
	UserID           *string `json:"user_id"`
	APIKeyID         *string `json:"api_key_id"`
	Model            *string `json:"model"`
}

// embeddings serves GET /v1/organization/usage/embeddings.
func (h *usage) embeddings(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.forwarded(x, r, c, store.UsageEmbedding, "organization.usage.embeddings.result")
}

// moderations serves GET /v1/organization/usage/moderations.
func (h *usage) moderations(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.forwarded(x, r, c, store.UsageModeration, "organization.usage.moderations.result")
}

func (h *usage) forwarded(x *exchange.Exchange, r *http.Request, c berth.Caller, kind store.UsageKind,
	object string) error {
	return h.answer(x, r, c, kind, []string{"project_id", "user_id", "api_key_id", "model"},
		func(group []string, used []*store.Usage) any {
			u := &forwardedUsage{Object: object, ProjectID: exchange.OrNull(group[0]),
				APIKeyID: exchange.OrNull(group[1]), Model: exchange.OrNull(group[2])}
			for _, of := range used {
				u.NumModelRequests += of.Count
				u.InputTokens += of.InputTokens
			}
			return u
		})
}

// sessions serves GET /v1/organization/usage/code_interpreter_sessions, whose
// sessions are containers.
func (h *usage) sessions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, store.UsageContainer, []string{"project_id"},
		func(group []string, used []*store.Usage) any {
			u := &sessionsUsage{Object: "organization.usage.code_interpreter_sessions.result",
				ProjectID: exchange.OrNull(group[0])}
			u.Berth.Seconds = map[string]int64{}
			for _, of := range used {
				u.NumSessions += of.Count
				u.Berth.Seconds[of.Name] += of.Seconds
			}
			return u
		})
}

// answer answers with a page of buckets. result sums the usage of one group in a bucket. A
// group has the values of project, key and model; "" means any.
func (h *usage) answer(x *exchange.Exchange, r *http.Request, c berth.Caller, kind store.UsageKind, groupable []string,
	result func(group []string, used []*store.Usage) any) error {
	req, err := readUsageRequest(r, kind, groupable)
	if err != nil {
		return err
	}
	end := req.start.Add(time.Duration(req.limit) * req.width)
	page := usagePage{Object: "page", Data: []usageBucket{}, HasMore: end.Before(req.to)}
	if page.HasMore {
		page.NextPage = exchange.OrNull("page_" + strconv.FormatInt(end.Unix(), 10))
	} else {
		end = req.to
	}
	whose := c.Project
	if c.Admin() {
		whose = "" // all projects
	}
	used, err := h.used.Usage(r.Context(), store.UsageQuery{Project: whose, Kind: kind, From: req.start, To: end,
		Width: req.width})
	if err != nil {
		return err
	}
	for start := req.start; start.Before(end); start = start.Add(req.width) {
		b := usageBucket{Object: "bucket", StartTime: start.Unix(), EndTime: min(start.Add(req.width).Unix(),
			max(req.end, start.Unix()+1)), Results: []any{}}
		n := slices.IndexFunc(used, func(u *store.Usage) bool { return u.Start != b.StartTime })
		if n < 0 {
			n = len(used)
		}
		for _, g := range req.groupsOf(used[:n]) {
			b.Results = append(b.Results, result(g.name, g.used))
		}
		used = used[n:]
		page.Data = append(page.Data, b)
	}
	return x.JSON(http.StatusOK, page)
}

func readUsageRequest(r *http.Request, kind store.UsageKind, groupable []string) (*usageRequest, error) {
	q := exchange.NewQuery(r)
	widths, names := bucketWidths, []string{"1m", "1h", "1d"}
	if kind == store.UsageUpstream {
		widths, names = costWidths, names[2:]
	}
	name := q.OneOf("bucket_width", names...)
	if name == "" {
		name = "1d"
	}
	width, known := widths[name]
	if !known {
		return nil, q.End()
	}
	req := &usageRequest{width: width.Duration, projects: q.Strings("project_ids"), groups: q.Strings("group_by")}
	switch kind {
	case store.UsageResponse, store.UsageEmbedding, store.UsageModeration:
		req.keys, req.models = q.Strings("api_key_ids"), q.Strings("models")
		users := q.Strings("user_ids")
		req.impossible = len(users) > 0 || kind == store.UsageResponse && q.Boolean("batch", false)
	}
	if kind == store.UsageUpstream {
		req.keys = q.Strings("api_key_ids")
	}
	for _, g := range req.groups {
		if !slices.Contains(groupable, g) {
			q.Fail(rule.WrongValue("group_by", g, groupable))
		}
	}
	const latest = 1 << 40
	if !q.Has("start_time") {
		q.Fail(rule.Missing("start_time"))
	}
	from := q.Integer("start_time", 0, 0, latest)
	req.end = q.Integer("end_time", time.Now().Unix(), 0, latest)
	req.limit = q.Integer("limit", width.limit, 1, width.most)
	req.from, req.to = time.Unix(from, 0).Truncate(req.width), time.Unix(req.end+int64(req.width/time.Second)-1,
		0).Truncate(req.width)
	req.start = req.from
	if cursor := q.Text("page"); cursor != "" {
		at, err := strconv.ParseInt(strings.TrimPrefix(cursor, "page_"), 10, 64)
		req.start = time.Unix(at, 0)
		if err != nil || at < 0 || at > latest || req.start.Before(req.from) ||
			!req.start.Equal(req.start.Truncate(req.width)) {
			q.Fail(berth.Invalid("page", "Invalid 'page'. Expected the 'next_page' of a previous page of this list."))
		}
	}
	if from >= req.end {
		q.Fail(berth.Invalid("end_time", "Invalid 'end_time'. Expected a time after 'start_time'."))
	}
	return req, q.End()
}

// A group is the usage with the same values of the fields by which the request groups.
type group struct {
	name []string // project, key, model or line item
	used []*store.Usage
}

// groupsOf groups the usage of one bucket. It drops usage that the filters exclude.
func (req *usageRequest) groupsOf(used []*store.Usage) []*group {
	any := func(of []string, s string) bool { return len(of) == 0 || slices.Contains(of, s) }
	var groups []*group
	for _, u := range used {
		if req.impossible || !any(req.projects, string(u.Project)) || !any(req.keys, string(u.Key)) ||
			!any(req.models, u.Name) {
			continue
		}
		name := make([]string, 3)
		for i, by := range []struct{ group, name string }{{"project_id", string(u.Project)},
			{"api_key_id", string(u.Key)}, {"model", u.Name}, {"line_item", u.Name}} {
			if slices.Contains(req.groups, by.group) {
				name[min(i, 2)] = by.name
			}
		}
		n := slices.IndexFunc(groups, func(g *group) bool { return slices.Equal(g.name, name) })
		if n < 0 {
			n = len(groups)
			groups = append(groups, &group{name: name})
		}
		groups[n].used = append(groups[n].used, u)
	}
	return groups
}
