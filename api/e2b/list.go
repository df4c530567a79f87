package e2b

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/internal/rule"
)

// nextToken is the header with which the next page of a list is requested.
const nextToken = "X-Next-Token"

// totalRunning is the header with the number of a project's sandboxes that run.
const totalRunning = "X-Total-Running"

// list serves GET /v2/sandboxes: the sandboxes that match metadata and state, the newest first.
func (h *sandboxes) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	want, err := metadataOf(q.Text("metadata"))
	if err != nil {
		return err
	}
	var states []string
	for _, s := range q.Texts("state") {
		states = append(states, strings.Split(s, ",")...)
	}
	for _, s := range states {
		if s != "running" && s != "paused" {
			return berth.Invalid("state", "Invalid 'state': '%s'. Supported values are: 'running' and 'paused'.",
				rule.Clip(s))
		}
	}
	if len(states) == 0 && r.URL.Path == "/sandboxes" {
		states = []string{"running"} // as before there were paused ones
	}
	limit, err := limitOf(q.Text("limit"))
	if err != nil {
		return err
	}
	after := int64(math.MinInt64)
	if text := q.Text("startedAfter"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return berth.Invalid("startedAfter",
				"Invalid 'startedAfter': '%s'. Expected a time such as '2026-01-31T12:00:00Z'.",
				rule.Clip(text))
		}
		after = at.UnixMilli()
	}
	template, order := q.Text("template"), q.Text("order")
	if order != "" && order != "asc" && order != "desc" {
		return berth.Invalid("order", "Invalid 'order': '%s'. Supported values are: 'asc' and 'desc'.",
			rule.Clip(order))
	}
	page := exchange.Page{Limit: 100, After: q.Text("nextToken"), Ascending: order == "asc"}
	if err := q.End(); err != nil {
		return err
	}
	matches := func(rec *deadline.Record) bool {
		state := "running"
		if rec.Paused {
			state = "paused"
		}
		if len(states) > 0 && !slices.Contains(states, state) || rec.StartedAt < after ||
			template != "" && rec.Template != template && rec.Alias != template {
			return false
		}
		for name, wanted := range want {
			if value, ok := rec.Metadata[name]; !ok || value != wanted {
				return false
			}
		}
		return true
	}
	x.Header().Set(totalRunning, strconv.Itoa(h.deadlines.Running(c.Project)))
	found := []detail{}
	for {
		list, more, err := h.deadlines.List(r.Context(), c.Project, page)
		if err != nil {
			return exchange.ListError(err, page)
		}
		for _, one := range list {
			page.After = string(one.ID)
			rec := one.Record
			if rec.Over(h.now()) || !matches(rec) {
				continue
			}
			made, err := h.deadlines.Container(r.Context(), c.Project, one.ID)
			if berth.ErrorCode(err) == berth.CodeNotFound {
				continue
			}
			if err != nil {
				return err
			}
			if len(found) == limit {
				x.Header().Set(nextToken, string(idOf(found[limit-1].SandboxID)))
				return x.JSON(http.StatusOK, found)
			}
			found = append(found, h.detail(r, rec, made))
		}
		if !more {
			return x.JSON(http.StatusOK, found)
		}
	}
}

// metadataOf returns the metadata of a filter: a query whose names and values clients encode once
// more.
func metadataOf(text string) (map[string]string, error) {
	query, err := url.ParseQuery(text)
	metadata := map[string]string{}
	for name, values := range query {
		var value string
		if name, err = url.PathUnescape(name); err == nil {
			value, err = url.PathUnescape(values[0])
		}
		if err != nil {
			break
		}
		metadata[name] = value
	}
	if err != nil {
		return nil, berth.Invalid("metadata", "Invalid 'metadata': expected NAME=VALUE pairs with '&' between them.")
	}
	return metadata, nil
}

// limitOf returns the size of a page.
func limitOf(text string) (int, error) {
	if text == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 100 {
		return 0, berth.Invalid("limit", "Invalid 'limit': '%s'. Expected an integer from 1 to 100.", rule.Clip(text))
	}
	return n, nil
}
