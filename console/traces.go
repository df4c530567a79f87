package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
)

// A tracesPage is the list of traces.
type tracesPage struct {
	Traces []traceRow
	Next   string // path of the next page; "" at the end
	Base   string // URL of the API
}

// Snippet returns the lines of a program that sends traces to the server.
func (p tracesPage) Snippet() string {
	return "from agents.tracing import set_trace_processors\n" +
		"from agents.tracing.processors import BackendSpanExporter, BatchTraceProcessor\n\n" +
		"set_trace_processors([BatchTraceProcessor(BackendSpanExporter(\n" +
		"    endpoint=\"" + p.Base + "/traces/ingest\"))])"
}

// A traceRow is a trace of the list.
type traceRow struct{ berth.Trace }

// Took returns the time from the first start of a span to the last end; 0 is unknown.
func (t traceRow) Took() int64 {
	if t.StartedAtMS == nil || t.EndedAtMS == nil {
		return 0
	}
	return max(0, *t.EndedAtMS-*t.StartedAtMS)
}

// A tracePage is the page of a trace.
type tracePage struct {
	traceRow
	Time    waterfall
	Details []spanView
	Form    formToken
}

// A spanView is a span with its data as text.
type spanView struct {
	ID, Name, Data string
}

// show serves GET /console/traces: traces of agents, the newest first.
func (p *tracesPage) show(v *visit) error {
	query := url.Values{"limit": {"50"}, "order": {"desc"}}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[traceRow]
	if err := v.get("/v1/traces?"+query.Encode(), &found); err != nil {
		return err
	}
	*p = tracesPage{Traces: found.Data, Base: baseURL(v)}
	if found.HasMore {
		p.Next = "/console/traces?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return v.show(http.StatusOK, "traces", "Traces", p)
}

// maxSpans is the number of spans that the page of a trace reads, and maxDetails that of spans whose
// data it shows.
const (
	maxSpans   = 1000
	maxDetails = 200
)

// show serves GET /console/traces/{trace}.
func (p *tracePage) show(v *visit) error {
	path := "/v1/traces/" + url.PathEscape(v.r.PathValue("trace"))
	*p = tracePage{Form: v.formToken()}
	if err := v.get(path, &p.Trace); err != nil {
		return err
	}
	var spans []berth.TraceSpan
	for after := ""; len(spans) < maxSpans; {
		var found list[berth.TraceSpan]
		if err := v.get(path+"/spans?limit=100&order=asc"+after, &found); err != nil {
			return err
		}
		if spans = append(spans, found.Data...); !found.HasMore {
			break
		}
		after = "&after=" + url.QueryEscape(found.LastID)
	}
	bars, ordered := traceBars(spans)
	p.Time = newWaterfall("time-"+p.ID, bars, true)
	p.Time.Open = true
	p.Time.More += max(0, p.Spans-len(spans))
	for _, s := range ordered[:min(len(ordered), maxDetails)] {
		d := spanView{ID: s.ID, Name: spanDataOf(s).name()}
		d.Data = clip(string(jsonscan.Indent(s.SpanData)), shownGrowing)
		if len(s.Error) > 0 && string(s.Error) != "null" {
			d.Data += "\n" + clip(string(s.Error), shownGrowing)
		}
		p.Details = append(p.Details, d)
	}
	return v.show(http.StatusOK, "trace", p.Title(), p)
}

// Title returns the heading of the trace.
func (t traceRow) Title() string {
	if t.WorkflowName != "" {
		return t.WorkflowName
	}
	return "Trace"
}

// delete serves POST /console/traces/{trace}/delete.
func (*tracePage) delete(v *visit) error {
	if err := v.delete("/v1/traces/" + url.PathEscape(v.r.PathValue("trace"))); err != nil {
		return err
	}
	return v.redirect("/console/traces")
}

// A spanData is the part of the data of a span that a waterfall shows.
type spanData struct {
	Type       string  `json:"type"`
	Name       string  `json:"name"`
	Model      string  `json:"model"`
	ResponseID *string `json:"response_id"`
	FromAgent  string  `json:"from_agent"`
	ToAgent    string  `json:"to_agent"`
	Server     string  `json:"server"`
	Usage      *struct {
		InputTokens  int `json:"input_tokens"`
		OutputTokens int `json:"output_tokens"`
	} `json:"usage"`
	Data struct {
		AgentName string `json:"agent_name"`
		Turn      int    `json:"turn"`
	} `json:"data"`
}

func spanDataOf(s *berth.TraceSpan) (d spanData) {
	_ = json.Unmarshal(s.SpanData, &d) // what fits is shown
	return d
}

// name returns what users see of a span.
func (d spanData) name() string {
	switch {
	case d.Type == "handoff":
		return "handoff: " + line(d.FromAgent) + " to " + line(d.ToAgent)
	case d.Type == "mcp_tools":
		return "list tools of " + line(d.Server)
	case d.Type == "custom" && d.Name == "turn" && d.Data.Turn > 0:
		return "turn " + count(d.Data.Turn)
	case d.Name != "":
		return line(d.Name)
	case d.Model != "":
		return line(d.Model)
	case d.Type != "":
		return line(d.Type)
	}
	return "span"
}

// kind returns the kind of a span's bar.
func (d spanData) kind() string {
	switch d.Type {
	case "agent":
		return "agent"
	case "generation", "response", "transcription", "speech":
		return "model"
	case "function", "mcp_tools":
		return "tool"
	}
	return "other"
}

// traceBars returns the bars of spans, each after its parent, and the spans in this order. A span whose
// parent is missing, or is itself, has none. Spans without times are placed at the start.
func traceBars(spans []berth.TraceSpan) (bars []bar, ordered []*berth.TraceSpan) {
	byID := map[string]*berth.TraceSpan{}
	for i := range spans {
		byID[spans[i].ID] = &spans[i]
	}
	children := map[string][]*berth.TraceSpan{}
	for i := range spans {
		parent := ""
		if p := spans[i].ParentID; p != nil && byID[*p] != nil {
			parent = *p
		}
		children[parent] = append(children[parent], &spans[i])
	}
	var first int64
	for i := range spans {
		if at := unixMilli(spans[i].StartedAt); at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	seen := map[string]bool{}
	var walk func(id string, depth int)
	walk = func(id string, depth int) {
		of := children[id]
		slices.SortStableFunc(of, func(a, b *berth.TraceSpan) int {
			return cmp.Compare(unixMilli(a.StartedAt), unixMilli(b.StartedAt))
		})
		for _, s := range of {
			if seen[s.ID] {
				continue
			}
			seen[s.ID] = true
			bars, ordered = append(bars, barOf(s, depth, first)), append(ordered, s)
			walk(s.ID, depth+1)
		}
	}
	walk("", 0)
	for i := range spans { // those of a circle
		if s := &spans[i]; !seen[s.ID] {
			seen[s.ID] = true
			bars, ordered = append(bars, barOf(s, 0, first)), append(ordered, s)
		}
	}
	return bars, ordered
}

func barOf(s *berth.TraceSpan, depth int, first int64) bar {
	d := spanDataOf(s)
	b := bar{Kind: d.kind(), Name: d.name(), Link: "#" + s.ID, Depth: depth, Start: first}
	if at := unixMilli(s.StartedAt); at > 0 {
		b.Start = at
		b.Took = max(0, unixMilli(s.EndedAt)-at)
	}
	if d.ResponseID != nil && *d.ResponseID != "" {
		b.Name = "response " + short(*d.ResponseID)
		b.Link = "/console/responses/" + url.PathEscape(*d.ResponseID)
	}
	if d.Usage != nil {
		b.Tokens = count(d.Usage.InputTokens) + " in, " + count(d.Usage.OutputTokens) + " out"
	}
	if len(s.Error) > 0 && string(s.Error) != "null" {
		var e struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(s.Error, &e) // an error without a message is one too
		b.Error = "error: " + line(e.Message)
	}
	return b
}

// unixMilli returns a time in Unix milliseconds; 0 is unknown.
func unixMilli(text *string) int64 {
	if text == nil {
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, *text)
	if err != nil {
		return 0
	}
	return at.UnixMilli()
}
