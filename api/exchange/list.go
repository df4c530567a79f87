package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A Listing is a page of a list on the wire.
type Listing[T any] struct {
	Object  string  `json:"object"` // "list"
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"` // null if the page is empty
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// ListOf returns a page with its first and last id. more is whether another page follows.
func ListOf[T any](data []T, more bool, id func(T) string) Listing[T] {
	l := Listing[T]{Object: "list", Data: data, HasMore: more}
	if len(data) == 0 {
		l.Data = []T{}
		return l
	}
	l.FirstID, l.LastID = OrNull(id(data[0])), OrNull(id(data[len(data)-1]))
	return l
}

// A Deletion is the answer to the deletion of an object.
type Deletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // such as "volume.deleted"
	Deleted bool   `json:"deleted"`
}

// Deleted returns the answer to the deletion of an object.
func Deleted[ID ~string](id ID, object string) Deletion {
	return Deletion{string(id), object, true}
}

// A Page is a part of a list that a client requests.
type Page = berth.Page

// ListError returns the client's error for a failed read of a page. "Not found" means that
// the list does not contain page.After.
func ListError(err error, page berth.Page) error {
	if page.After != "" && (errors.Is(err, berth.ErrNotFound) || berth.ErrorCode(err) == berth.CodeNotFound) {
		return AfterNotFound(page.After)
	}
	return err
}

// AfterNotFound returns the error for a page after an id that is not in the list.
func AfterNotFound(id string) error {
	return berth.Invalid("after", "Invalid 'after': no object with id '%s' in this list.", rule.Clip(id))
}

// List answers a request for a page of a list: 20 elements by default, at most 100. id returns the id of an element.
func List[T any](x *Exchange, r *http.Request, c berth.Caller,
	list func(context.Context, berth.ProjectID, berth.Page) ([]T, bool, error), id func(T) string) error {
	q := NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := list(r.Context(), c.Project, page)
	if err != nil {
		return ListError(err, page)
	}
	return x.JSON(http.StatusOK, ListOf(data, more, id))
}

// Get answers a request for the object of an id.
func Get[T any, ID ~string](x *Exchange, r *http.Request, c berth.Caller,
	get func(context.Context, berth.ProjectID, ID) (T, error), id ID) error {
	object, err := get(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, object)
}

// Delete answers a request to delete the object of an id. The answer names it as object, such as "volume.deleted".
func Delete[ID ~string](x *Exchange, r *http.Request, c berth.Caller,
	remove func(context.Context, berth.ProjectID, ID) error, id ID, object string) error {
	if err := remove(r.Context(), c.Project, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, Deleted(id, object))
}

// Documents returns a page with the JSON of stored objects, which of returns with their ids.
func Documents[T any](list []T, more bool, of func(T) (id string, body json.RawMessage)) Listing[json.RawMessage] {
	ids := ListOf(list, more, func(o T) string {
		id, _ := of(o)
		return id
	})
	page := Listing[json.RawMessage]{Object: ids.Object, Data: []json.RawMessage{}, FirstID: ids.FirstID,
		LastID: ids.LastID, HasMore: more}
	for _, o := range list {
		_, body := of(o)
		page.Data = append(page.Data, body)
	}
	return page
}

// PageOf returns one page of all and whether another page follows. all must be sorted from
// the oldest to the newest.
func PageOf[T any](all []T, page berth.Page, id func(T) string) ([]T, bool, error) {
	all = slices.Clone(all)
	if !page.Ascending {
		slices.Reverse(all)
	}
	if page.After != "" {
		n := slices.IndexFunc(all, func(v T) bool { return id(v) == page.After })
		if n < 0 {
			return nil, false, AfterNotFound(page.After)
		}
		all = all[n+1:]
	}
	if page.Before != "" {
		n := slices.IndexFunc(all, func(v T) bool { return id(v) == page.Before })
		if n < 0 {
			return nil, false, rule.Errorf("invalid_value", "before",
				"Invalid 'before': no object with id '%s' in this list.", rule.Clip(page.Before))
		}
		if all = all[:n]; page.After == "" && n > page.Limit {
			return all[n-page.Limit:], true, nil
		}
	}
	if len(all) > page.Limit {
		return all[:page.Limit], true, nil
	}
	return all, false, nil
}
