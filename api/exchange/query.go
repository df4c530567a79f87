package exchange

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A Query reads the parameters of a URL. It records the first error.
type Query struct {
	values url.Values
	known  []string
	err    error
}

// NewQuery returns the parameters of a request's URL.
func NewQuery(r *http.Request) *Query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		err = berth.Errorf(berth.CodeInvalid, "The query string of the URL is malformed.")
	}
	// The SDKs' beta resources send beta=true with every request.
	return &Query{values: values, err: err, known: []string{"beta"}}
}

// End returns the first error. A parameter that has not been read is an error.
func (q *Query) End() error {
	if q.err != nil {
		return q.err
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.known, name) {
			return rule.UnknownParameter(rule.Clip(name))
		}
	}
	return nil
}

// Text returns a parameter, or "" if it is absent.
func (q *Query) Text(name string) string {
	q.known = append(q.known, name)
	return q.values.Get(name)
}

// Texts returns all values of a parameter.
func (q *Query) Texts(name string) []string {
	q.known = append(q.known, name)
	return q.values[name]
}

// Fail records an error, if it is the first.
func (q *Query) Fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// Boolean returns a boolean parameter, or the value otherwise if it is absent.
func (q *Query) Boolean(name string, otherwise bool) bool {
	switch v := q.Text(name); v {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	default:
		q.Fail(rule.Errorf("invalid_type", name, "Invalid type for '%s': expected a boolean, but got '%s' instead.",
			name, rule.Clip(v)))
		return otherwise
	}
}

// Integer returns an integer parameter from least to most, or the value otherwise if it is
// absent.
func (q *Query) Integer(name string, otherwise, least, most int64) int64 {
	v := q.Text(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		q.Fail(rule.Errorf("invalid_type", name, "Invalid type for '%s': expected an integer, but got '%s' instead.",
			name, rule.Clip(v)))
	} else if err := rule.InRange(name, "integer", v, n, least, most); err != nil {
		q.Fail(err)
	}
	return n
}

// OneOf returns a parameter that must be one of values, or "" if it is absent.
func (q *Query) OneOf(name string, values ...string) string {
	v := q.Text(name)
	if v != "" && !slices.Contains(values, v) {
		q.Fail(rule.WrongValue(name, v, values))
	}
	return v
}

// List returns the values of a parameter that may be repeated, named "name" or "name[]",
// and checks them.
func (q *Query) List(name string, values []string) (found []string) {
	q.known = append(q.known, name, name+"[]")
	for _, v := range slices.Concat(q.values[name], q.values[name+"[]"]) {
		for _, one := range strings.Split(v, ",") {
			if !slices.Contains(values, one) {
				q.Fail(rule.WrongValue(name, one, values))
			}
			found = append(found, one)
		}
	}
	return found
}

// pageBytes is the maximum size of a page in bytes, unless its only entry is larger.
const pageBytes = 8 << 20

// Page reads limit, order and after.
func (q *Query) Page(limit, most int64) berth.Page {
	return berth.Page{
		Bytes:     pageBytes,
		Limit:     int(q.Integer("limit", limit, 1, most)),
		Ascending: q.OneOf("order", "asc", "desc") == "asc",
		After:     q.Text("after"),
	}
}

// PageBoth reads limit, order, after and before.
func (q *Query) PageBoth() berth.Page {
	page := q.Page(20, 100)
	page.Before = q.Text("before")
	return page
}

// PageAscending reads limit, order and after of a list whose default order is ascending.
func (q *Query) PageAscending() berth.Page {
	page := q.Page(20, 100)
	page.Ascending = q.values.Get("order") != "desc"
	return page
}

// Has reports whether the URL has a parameter.
func (q *Query) Has(name string) bool { return q.values.Has(name) }

// Strings returns the values of a parameter that may be repeated, named "name" or "name[]",
// or separated by commas.
func (q *Query) Strings(name string) []string {
	q.known = append(q.known, name, name+"[]")
	var all []string
	for _, v := range slices.Concat(q.values[name], q.values[name+"[]"]) {
		all = append(all, strings.Split(v, ",")...)
	}
	return all
}

// Pairs returns the values of the parameters name[key] by key.
func (q *Query) Pairs(name string) map[string]string {
	pairs := map[string]string{}
	for param := range q.values {
		key, ok := strings.CutPrefix(param, name+"[")
		if key, closed := strings.CutSuffix(key, "]"); ok && closed {
			q.known = append(q.known, param)
			pairs[key] = q.values.Get(param)
		}
	}
	return pairs
}
