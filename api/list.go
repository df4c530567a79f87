package api

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A listing is a page of a list on the wire.
type listing[T any] struct {
	Object  string  `json:"object"` // "list"
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"` // null if the page is empty
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func listOf[T any](data []T, more bool, id func(T) string) listing[T] {
	l := listing[T]{Object: "list", Data: data, HasMore: more}
	if len(data) == 0 {
		l.Data = []T{}
		return l
	}
	l.FirstID, l.LastID = orNull(id(data[0])), orNull(id(data[len(data)-1]))
	return l
}

// deleted is what is left of a thing on the wire.
func deleted[ID ~string](id ID, object string) any {
	return struct {
		ID      ID     `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{id, object, true}
}

// listError words an error of reading a page: what was not found is where it
// should begin.
func listError(err error, page store.Page) error {
	if page.After != "" && (errors.Is(err, store.ErrNotFound) || berth.ErrorCode(err) == berth.CodeNotFound) {
		return afterNotFound(page.After)
	}
	return err
}

func afterNotFound(id string) error {
	return berth.Invalid("after", "Invalid 'after': nothing in this list has the id '%s'.", clip(id))
}

// A query reads the parameters of a URL. It remembers the first that is wrong.
type query struct {
	values url.Values
	known  []string
	err    error
}

func newQuery(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		err = berth.Errorf(berth.CodeInvalid, "The query of the URL is malformed.")
	}
	// The SDKs' beta resources send beta=true with every request.
	return &query{values: values, err: err, known: []string{"beta"}}
}

// end returns the first error; a parameter that nobody asked for is one.
func (q *query) end() error {
	if q.err != nil {
		return q.err
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.known, name) {
			return unknownParameter(clip(name))
		}
	}
	return nil
}

// text returns a parameter, "" if it is absent.
func (q *query) text(name string) string {
	q.known = append(q.known, name)
	return q.values.Get(name)
}

// fail keeps the first error.
func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) boolean(name string, otherwise bool) bool {
	switch v := q.text(name); v {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	default:
		q.fail(wire("invalid_type", name, "Invalid type for '%s': expected a boolean, but got '%s' instead.", name, clip(v)))
		return otherwise
	}
}

func (q *query) integer(name string, otherwise, least, most int64) int64 {
	v := q.text(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		q.fail(wire("invalid_type", name, "Invalid type for '%s': expected an integer, but got '%s' instead.", name, clip(v)))
	} else if err := inRange(name, "integer", v, n, least, most); err != nil {
		q.fail(err)
	}
	return n
}

func (q *query) oneOf(name string, values ...string) string {
	v := q.text(name)
	if v != "" && !slices.Contains(values, v) {
		q.fail(wrongValue(name, v, values))
	}
	return v
}

// list checks a parameter that may be repeated, also under the name "name[]".
func (q *query) list(name string, values []string) {
	q.known = append(q.known, name, name+"[]")
	for _, v := range slices.Concat(q.values[name], q.values[name+"[]"]) {
		for _, one := range strings.Split(v, ",") {
			if !slices.Contains(values, one) {
				q.fail(wrongValue(name, one, values))
			}
		}
	}
}

// pageBytes is how much a page of a list holds, unless one entry is larger. What does
// not fit is on the next page.
const pageBytes = 8 << 20

// page reads limit, order and after.
func (q *query) page(limit, most int64) store.Page {
	return store.Page{
		Bytes:     pageBytes,
		Limit:     int(q.integer("limit", limit, 1, most)),
		Ascending: q.oneOf("order", "asc", "desc") == "asc",
		After:     q.text("after"),
	}
}
