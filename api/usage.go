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
	"github.com/berth-run/berth/usage"
)

// usagePages serves the usage of projects and its cost.
type usagePages struct {
	counted  *usage.Reader
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

// A usageRequest is the query of a request for usage.
type usageRequest struct {
	query      usage.Query // its From is the start of the page
	to         time.Time   // end_time, extended to whole buckets
	end        int64       // end_time, in Unix seconds
	limit      int64       // number of buckets
	impossible bool        // a filter that matches nothing, because Berth has no such usage
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
func (h *usagePages) completions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, usage.Responses, []string{usage.ByProject, "user_id", usage.ByKey, usage.ByModel, "batch",
		"service_tier"},
		func(of *usage.Group) any {
			u := &completionsUsage{Object: "organization.usage.completions.result", NumModelRequests: of.Count,
				InputTokens: of.InputTokens, InputCachedTokens: of.CachedTokens,
				InputUncachedTokens: of.InputTokens - of.CachedTokens, OutputTokens: of.OutputTokens,
				ProjectID: exchange.OrNull(of.Project), APIKeyID: exchange.OrNull(of.Key),
				Model: exchange.OrNull(of.Name)}
			u.Berth.ReasoningTokens = of.ReasoningTokens
			if of.Cost != 0 {
				u.Berth.Cost = &berth.Cost{Value: of.Cost, Currency: cmp.Or(h.currency, "usd")}
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
func (h *usagePages) embeddings(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.forwarded(x, r, c, usage.Embeddings, "organization.usage.embeddings.result")
}

// moderations serves GET /v1/organization/usage/moderations.
func (h *usagePages) moderations(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.forwarded(x, r, c, usage.Moderations, "organization.usage.moderations.result")
}

func (h *usagePages) forwarded(x *exchange.Exchange, r *http.Request, c berth.Caller, kind usage.Kind,
	object string) error {
	return h.answer(x, r, c, kind, []string{usage.ByProject, "user_id", usage.ByKey, usage.ByModel},
		func(of *usage.Group) any {
			return &forwardedUsage{Object: object, ProjectID: exchange.OrNull(of.Project),
				APIKeyID: exchange.OrNull(of.Key), Model: exchange.OrNull(of.Name), NumModelRequests: of.Count,
				InputTokens: of.InputTokens}
		})
}

// sessions serves GET /v1/organization/usage/code_interpreter_sessions, whose
// sessions are containers.
func (h *usagePages) sessions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, usage.Containers, []string{usage.ByProject},
		func(of *usage.Group) any {
			u := &sessionsUsage{Object: "organization.usage.code_interpreter_sessions.result", NumSessions: of.Count,
				ProjectID: exchange.OrNull(of.Project)}
			u.Berth.Seconds = of.Seconds
			return u
		})
}

// toolsUsage is the usage of tools by a group.
type toolsUsage struct {
	Object      string  `json:"object"`
	NumRequests int64   `json:"num_requests"` // calls
	ProjectID   *string `json:"project_id"`
	UserID      *string `json:"user_id"`
	APIKeyID    *string `json:"api_key_id"`
	Tool        *string `json:"tool"` // its type, such as "shell"
}

// toolCalls serves GET /v1/organization/usage/tool_calls.
func (h *usagePages) toolCalls(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, usage.Tools, []string{usage.ByProject, "user_id", usage.ByKey, usage.ByTool},
		func(of *usage.Group) any {
			return &toolsUsage{Object: "organization.usage.tool_calls.result", NumRequests: of.Count,
				ProjectID: exchange.OrNull(of.Project), APIKeyID: exchange.OrNull(of.Key),
				Tool: exchange.OrNull(of.Name)}
		})
}

// answer answers with a page of buckets. result is the answer's form of a group.
func (h *usagePages) answer(x *exchange.Exchange, r *http.Request, c berth.Caller, kind usage.Kind, groupable []string,
	result func(*usage.Group) any) error {
	req, err := readUsageRequest(r, kind, groupable)
	if err != nil {
		return err
	}
	q := req.query
	q.To = q.From.Add(time.Duration(req.limit) * q.Width)
	page := usagePage{Object: "page", Data: []usageBucket{}, HasMore: q.To.Before(req.to)}
	if page.HasMore {
		page.NextPage = exchange.OrNull("page_" + strconv.FormatInt(q.To.Unix(), 10))
	} else {
		q.To = req.to
	}
	if !c.Admin() {
		q.Project = c.Project
	}
	buckets, err := h.counted.Report(r.Context(), q)
	if err != nil {
		return err
	}
	for _, of := range buckets {
		start := of.Start.Unix()
		b := usageBucket{Object: "bucket", StartTime: start, EndTime: min(of.Start.Add(q.Width).Unix(),
			max(req.end, start+1)), Results: []any{}}
		if !req.impossible {
			for _, g := range of.Groups {
				b.Results = append(b.Results, result(g))
			}
		}
		page.Data = append(page.Data, b)
	}
	return x.JSON(http.StatusOK, page)
}

func readUsageRequest(r *http.Request, kind usage.Kind, groupable []string) (*usageRequest, error) {
	q := exchange.NewQuery(r)
	widths, names := bucketWidths, []string{"1m", "1h", "1d"}
	if kind == usage.Upstreams {
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
	req := &usageRequest{query: usage.Query{Kind: kind, Width: width.Duration, Projects: q.Strings("project_ids"),
		Groups: q.Strings("group_by")}}
	switch kind {
	case usage.Responses, usage.Embeddings, usage.Moderations:
		req.query.Keys, req.query.Models = q.Strings("api_key_ids"), q.Strings("models")
		users := q.Strings("user_ids")
		req.impossible = len(users) > 0 || kind == usage.Responses && q.Boolean("batch", false)
	}
	if kind == usage.Tools {
		req.query.Keys, req.query.Models = q.Strings("api_key_ids"), q.Strings("tools")
		req.impossible = len(q.Strings("user_ids")) > 0
	}
	if kind == usage.Upstreams {
		req.query.Keys = q.Strings("api_key_ids")
	}
	for _, g := range req.query.Groups {
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
	first := time.Unix(from, 0).Truncate(width.Duration)
	req.to = time.Unix(req.end+int64(width.Duration/time.Second)-1, 0).Truncate(width.Duration)
	req.query.From = first
	if cursor := q.Text("page"); cursor != "" {
		at, err := strconv.ParseInt(strings.TrimPrefix(cursor, "page_"), 10, 64)
		start := time.Unix(at, 0)
		req.query.From = start
		if err != nil || at < 0 || at > latest || start.Before(first) ||
			!start.Equal(start.Truncate(width.Duration)) {
			q.Fail(berth.Invalid("page", "Invalid 'page'. Expected the 'next_page' of a previous page of this list."))
		}
	}
	if from >= req.end {
		q.Fail(berth.Invalid("end_time", "Invalid 'end_time'. Expected a time after 'start_time'."))
	}
	return req, q.End()
}
