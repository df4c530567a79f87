package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// list returns all objects of a list endpoint. Path may have a query.
func list[T any](ctx context.Context, c *client, path string) ([]T, error) {
	return listFor[T](ctx, c, path, &listing{})
}

// listFor returns the objects of a list endpoint that a listing shows. It requests no more pages
// than the listing's limit needs.
func listFor[T any](ctx context.Context, c *client, path string, l *listing) ([]T, error) {
	var all []T
	for page, err := range pages[T](ctx, c, path, "after") {
		if err != nil {
			return nil, err
		}
		for _, o := range page {
			shown, err := l.where.keep(o)
			if err != nil {
				return nil, err
			}
			if shown {
				all = append(all, o)
			}
		}
		if l.limit > 0 && len(all) >= l.limit {
			break
		}
	}
	return all, nil
}

// pages yields the pages of a list endpoint, whose next page is the one after the parameter cursor.
func pages[T any](ctx context.Context, c *client, path, cursor string) iter.Seq2[[]T, error] {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	return func(yield func([]T, error) bool) {
		for after := ""; ; {
			var page struct {
				Data    []T    `json:"data"`
				LastID  string `json:"last_id"`
				HasMore bool   `json:"has_more"`
			}
			query := url.Values{"limit": {"100"}}
			if after != "" {
				query.Set(cursor, after)
			}
			err := c.call(ctx, "GET", path+sep+query.Encode(), nil, &page)
			if !yield(page.Data, err) || err != nil {
				return
			}
			if after = page.LastID; !page.HasMore || after == "" {
				return
			}
		}
	}
}

// A listing says which objects a command prints, and in which form.
type listing struct {
	json, quiet, full bool
	format            rowFormat
	where             conditions
	limit             int // 0 means none
}

// listFlags adds the flags that all listings have to a command that lists objects of type T.
// example is a filter for the help text. limit is the default of --limit.
func listFlags[T any](cmd *cobra.Command, example string, limit int) *listing {
	l := &listing{where: conditions{example: example, fields: fieldsOf(reflect.TypeFor[T]())}}
	cmd.Flags().VarP(&l.where, "filter", "f",
		"list only objects with this value, such as "+example+"; != excludes, * matches any text; all of several must match")
	if err := cmd.RegisterFlagCompletionFunc("filter", l.where.complete); err != nil {
		panic(err) // the flag exists
	}
	cmd.Flags().IntVarP(&l.limit, "limit", "n", limit, "list at most this many objects; 0 lists all")
	cmd.Flags().BoolVar(&l.json, "json", false, "print each object as a line of JSON")
	cmd.Flags().BoolVarP(&l.quiet, "quiet", "q", false, "print full ids only")
	cmd.Flags().Var(&l.format, "format", "print each object by a Go template of its JSON, such as '{{.id}} {{.created_at}}'")
	cmd.Flags().BoolVar(&l.full, "no-trunc", false, "print full ids and times, and on a terminal all of each text")
	cmd.MarkFlagsMutuallyExclusive("json", "quiet", "format")
	return l
}

// id returns an id as the table shows it.
func (l *listing) id(id string) string {
	if l.full {
		return id
	}
	return shortID(id)
}

// modelWidth is how much of a model's name a table shows.
const modelWidth = 28

// clip returns the name of a model as the table shows it.
func (l *listing) clip(name string) string { return l.cut(name, modelWidth) }

// cut returns a text as the table shows it: on a terminal in at most width characters, elsewhere whole.
func (l *listing) cut(text string, width int) string {
	if r := []rune(text); !l.full && len(r) > width && term.IsTerminal(int(os.Stdout.Fd())) {
		return string(r[:width-1]) + "…"
	}
	return text
}

// since returns the age of an object as the table shows it.
func (l *listing) since(now time.Time, at int64) string {
	if l.full {
		return utc(at)
	}
	return age(now, at) + " ago"
}

// until returns the time of an object's expiry as the table shows it.
func (l *listing) until(now time.Time, at int64) string {
	if l.full {
		return utc(at)
	}
	return "in " + duration(time.Unix(at, 0).Sub(now))
}

// age returns the time since a Unix time.
func age(now time.Time, at int64) string { return duration(now.Sub(time.Unix(at, 0))) }

// duration returns a duration in its largest unit, such as 5m. A negative one is 0s.
func duration(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// utc formats a time in Unix seconds.
func utc(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// printList prints the objects that a listing shows, as a table with a head, as ids, or as JSON. row
// returns the cells of an object, separated by tabs like those of the head.
func printList[T any](w io.Writer, l *listing, all []T, id func(T) string, head string, row func(T) string) error {
	var objects []T
	for _, o := range all {
		shown, err := l.where.keep(o)
		if err != nil {
			return err
		}
		if shown && (l.limit <= 0 || len(objects) < l.limit) {
			objects = append(objects, o)
		}
	}
	if l.json {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for _, o := range objects {
			if err := enc.Encode(o); err != nil {
				return err
			}
		}
		return nil
	}
	if l.format.template != nil {
		for _, o := range objects {
			if err := l.format.print(w, o); err != nil {
				return err
			}
		}
		return nil
	}
	if l.quiet {
		for _, o := range objects {
			if _, err := fmt.Fprintln(w, id(o)); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for _, o := range objects {
		fmt.Fprintln(table, row(o))
	}
	return table.Flush()
}
