package messages

import (
	"errors"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

// A listing is a page of a list in Anthropic's form.
type listing[T any] struct {
	Data    []T     `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

// newList returns a page of a list.
func newList[T any](data []T, more bool, id func(T) string) listing[T] {
	l := listing[T]{Data: data, HasMore: more}
	if len(data) == 0 {
		l.Data = []T{}
		return l
	}
	first, last := id(data[0]), id(data[len(data)-1])
	l.FirstID, l.LastID = &first, &last
	return l
}

// A cursorList is a page of a list that newer clients continue with a cursor, and older ones with an id.
type cursorList[T any] struct {
	listing[T]
	NextPage *string `json:"next_page"`
}

// cursorPrefix begins a cursor, which holds the last id of the page.
const cursorPrefix = "page_"

// newCursorList returns a page of a list.
func newCursorList[T any](data []T, more bool, id func(T) string) cursorList[T] {
	l := cursorList[T]{listing: newList(data, more, id)}
	if more && l.LastID != nil {
		next := cursorPrefix + *l.LastID
		l.NextPage = &next
	}
	return l
}

// convertList returns a page with its elements in another form.
func convertList[T any](l cursorList[T], convert func(T) any) cursorList[any] {
	data := make([]any, len(l.Data))
	for i, each := range l.Data {
		data[i] = convert(each)
	}
	return cursorList[any]{listing[any]{data, l.HasMore, l.FirstID, l.LastID}, l.NextPage}
}

// An idPage is a page of a list, newest first, that a client asks for by the id before or after it.
type idPage struct {
	berth.Page
	before bool // the page is the one before Page.After, in reverse order
}

// readPage reads the page of a query.
func readPage(q *exchange.Query, limit int64) idPage {
	page := idPage{Page: berth.Page{Limit: int(q.Integer("limit", limit, 1, 1000)), After: q.Text("after_id")}}
	if before := q.Text("before_id"); before != "" {
		page.After, page.Ascending, page.before = before, true, true
	}
	if cursor := q.Text("page"); cursor != "" {
		page.After = strings.TrimPrefix(cursor, cursorPrefix)
	}
	q.Text("beta") // sent by clients of beta features
	return page
}

// error returns the client's error for a page that could not be listed.
func (p *idPage) error(err error) error {
	if listed := exchange.ListError(err, p.Page); !errors.Is(listed, err) {
		return berth.Invalid(map[bool]string{true: "before_id", false: "after_id"}[p.before],
			"no object with id '%s' in this list", rule.Clip(p.After))
	}
	return err
}

// inOrder converts the elements of a page, newest first.
func inOrder[T, U any](p idPage, list []T, convert func(T) U) []U {
	out := make([]U, len(list))
	for i, each := range list {
		out[i] = convert(each)
	}
	if p.before {
		slices.Reverse(out)
	}
	return out
}
