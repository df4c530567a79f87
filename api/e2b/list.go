package e2b

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// nextToken is the header with which the next page of a list is requested.
const nextToken = "X-Next-Token"

// list serves GET /v2/sandboxes: the sandboxes that match metadata and state, the newest first.
func (d *Door) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := r.URL.Query()
	want, err := metadataOf(q.Get("metadata"))
	if err != nil {
		return err
	}
	var states []string
	for _, s := range q["state"] {
		states = append(states, strings.Split(s, ",")...)
	}
	for _, s := range states {
		if s != "running" && s != "paused" {
			return berth.Invalid("state", "Invalid 'state': '%s'. Supported values are: 'running' and 'paused'.", rule.Clip(s))
		}
	}
	if len(states) == 0 && r.URL.Path == "/sandboxes" {
		states = []string{"running"} // as before there were paused ones
	}
	limit, err := limitOf(q.Get("limit"))
	if err != nil {
		return err
	}
	matches := func(rec *record) bool {
		state := "running"
		if rec.Paused {
			state = "paused"
		}
		if len(states) > 0 && !slices.Contains(states, state) || q.Get("template") != "" && rec.Template != q.Get("template") {
			return false
		}
		for name, wanted := range want {
			if value, ok := rec.Metadata[name]; !ok || value != wanted {
				return false
			}
		}
		return true
	}
	page := store.Page{Limit: 100, After: q.Get("nextToken"), Ascending: q.Get("order") == "asc"}
	found := []detail{}
	for {
		objects, more, err := d.Objects.ListObjects(r.Context(), c.Project, store.KindSandbox, "", page)
		if err != nil {
			return exchange.ListError(err, page)
		}
		for _, o := range objects {
			page.After = o.ID
			rec, err := decode(o)
			if err != nil {
				return err
			}
			if rec.over(d.Now()) || !matches(rec) {
				continue
			}
			made, err := d.container(r.Context(), c.Project, berth.ContainerID(o.ID))
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
			found = append(found, d.detail(r, rec, made))
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
