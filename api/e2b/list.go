package e2b

import (
	"context"
	"fmt"
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

// totalRunning is the header of a list with running sandboxes: how many of all pages run and match its filters.
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
	selects := func(state string) bool { return len(states) == 0 || slices.Contains(states, state) }
	filtered := len(want) > 0 || after != math.MinInt64 || template != ""
	matches := func(rec *deadline.Record) bool {
		if rec.StartedAt < after || template != "" && rec.Template != template && rec.Alias != template {
			return false
		}
		for name, wanted := range want {
			if value, ok := rec.Metadata[name]; !ok || value != wanted {
				return false
			}
		}
		return true
	}
	if selects("running") {
		total := h.deadlines.Running(c.Project)
		if filtered {
			if total, err = h.countRunning(r.Context(), c.Project, matches); err != nil {
				return err
			}
		}
		x.Header().Set(totalRunning, strconv.Itoa(total))
	}
	found := []detail{}
	for {
		list, more, err := h.deadlines.List(r.Context(), c.Project, page)
		if err != nil {
			return exchange.ListError(err, page)
		}
		for _, one := range list {
			page.After = string(one.ID)
			rec := one.Record
			state := "running"
			if rec.Paused {
				state = "paused"
			}
			if rec.Over(h.now()) || !selects(state) || !matches(rec) {
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

// countRunning returns the number of a project's running sandboxes that match.
func (h *sandboxes) countRunning(ctx context.Context, p berth.ProjectID,
	matches func(*deadline.Record) bool) (count int, err error) {
	page := exchange.Page{Limit: 100}
	for {
		list, more, err := h.deadlines.List(ctx, p, page)
		if err != nil {
			return 0, fmt.Errorf("count running sandboxes: %w", err)
		}
		for _, one := range list {
			page.After = string(one.ID)
			if !one.Record.Paused && !one.Record.Over(h.now()) && matches(one.Record) {
				count++
			}
		}
		if !more {
			return count, nil
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
