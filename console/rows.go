package console

import (
	"net/url"
	"strconv"
)

// A rows is a page of a list of the API, with the token of the page's forms.
type rows[T any] struct {
	Rows []T
	Next string // path of the next page; "" at the end
	Form formToken
}

// read reads a list of the API, the newest first, after the id in the visit's query. The list has the parameters of
// the query that keep names.
func (p *rows[T]) read(v *visit, from string, most int, keep ...string) error {
	asked := v.r.URL.Query()
	query, next := url.Values{"limit": {strconv.Itoa(most)}, "order": {"desc"}}, url.Values{}
	for _, name := range keep {
		if value := asked.Get(name); value != "" {
			query.Set(name, value)
			next.Set(name, value)
		}
	}
	if after := asked.Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[T]
	if err := v.get(from+"?"+query.Encode(), &found); err != nil {
		return err
	}
	*p = rows[T]{Rows: found.Data, Form: v.formToken()}
	if found.HasMore {
		next.Set("after", found.LastID)
		p.Next = v.r.URL.Path + "?" + next.Encode()
	}
	return nil
}

// mostRows is the number of rows of a page.
const mostRows = 50

// pathTo returns a path below another, whose last element is an id.
func pathTo[ID ~string](above string, id ID) string { return above + "/" + url.PathEscape(string(id)) }
