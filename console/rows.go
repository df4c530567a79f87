package console

import (
	"net/url"
	"strconv"
	"strings"
)

// A rows is a page of a list of the API, with the token of the page's forms.
type rows[T any] struct {
	Rows  []T
	Words string // that the rows have; "" shows all
	Here  string // path of the list
	Next  string // path of the next page; "" at the end
	Form  formToken
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
	*p = rows[T]{Rows: found.Data, Here: v.r.URL.Path, Form: v.formToken()}
	if found.HasMore {
		next.Set("after", found.LastID)
		p.Next = v.r.URL.Path + "?" + next.Encode()
	}
	return nil
}

// find is read of the rows that have the words of the query in their text. The API has no such search, so find reads
// up to searchPages pages, until it has found a page of rows.
func (p *rows[T]) find(v *visit, from string, text func(T) (string, error), keep ...string) error {
	asked := v.r.URL.Query()
	words := strings.TrimSpace(asked.Get("q"))
	if words == "" {
		return p.read(v, from, mostRows, keep...)
	}
	query, next := url.Values{"limit": {"100"}, "order": {"desc"}}, url.Values{"q": {words}}
	for _, name := range append([]string{"after"}, keep...) {
		if value := asked.Get(name); value != "" {
			query.Set(name, value)
			next.Set(name, value)
		}
	}
	*p = rows[T]{Words: words, Here: v.r.URL.Path, Form: v.formToken()}
	for range searchPages {
		var found list[T]
		if err := v.get(from+"?"+query.Encode(), &found); err != nil {
			return err
		}
		for _, row := range found.Data {
			of, err := text(row)
			if err != nil {
				return err
			}
			if contains(of, words) {
				p.Rows = append(p.Rows, row)
			}
		}
		p.Next = ""
		if !found.HasMore {
			break
		}
		next.Set("after", found.LastID)
		p.Next = v.r.URL.Path + "?" + next.Encode()
		if len(p.Rows) >= mostRows {
			break
		}
		query.Set("after", found.LastID)
	}
	return nil
}

// contains reports whether a text has words, in upper or lower case.
func contains(text, words string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(words))
}

// textIn returns the text of rows in which find searches.
func textIn[T any](fields func(T) []string) func(T) (string, error) {
	return func(row T) (string, error) { return strings.Join(fields(row), "\n"), nil }
}

// mostRows is the number of rows of a page.
const mostRows = 50

// pathTo returns a path below another, whose last element is an id.
func pathTo[ID ~string](above string, id ID) string { return above + "/" + url.PathEscape(string(id)) }
