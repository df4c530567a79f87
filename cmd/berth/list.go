package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// list returns all objects of a list endpoint. Path may have a query.
func list[T any](ctx context.Context, c *client, path string) ([]T, error) {
	return listSome[T](ctx, c, path, &listing{}, 0)
}

// listSome is list for at most limit objects that match the filters of l, unless limit is 0.
func listSome[T any](ctx context.Context, c *client, path string, l *listing, limit int) ([]T, error) {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	var all []T
	for after := ""; ; {
		var page struct {
			Data    []T    `json:"data"`
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		query := url.Values{"limit": {"100"}}
		if after != "" {
			query.Set("after", after)
		}
		if err := c.call(ctx, "GET", path+sep+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		found, err := filtered(l, page.Data)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if after = page.LastID; !page.HasMore || after == "" {
			return all, nil
		}
	}
}

// A listing is the form in which a command prints objects.
type listing struct {
	json, quiet, full bool
	filters           []string // FIELD=PATTERN; see selector
}

// listFlags adds --json, --quiet, --no-trunc and --filter to a command.
func listFlags(cmd *cobra.Command) *listing {
	l := &listing{}
	cmd.Flags().BoolVar(&l.json, "json", false, "print each object as a line of JSON")
	cmd.Flags().BoolVarP(&l.quiet, "quiet", "q", false, "print full ids only")
	cmd.Flags().BoolVar(&l.full, "no-trunc", false, "print full ids and times")
	cmd.Flags().StringArrayVarP(&l.filters, "filter", "f", nil, "only objects with a field, as --json prints it, that matches: name=test-*, metadata.user=eve; all of several must match")
	cmd.MarkFlagsMutuallyExclusive("json", "quiet")
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

// cut returns a text as the table shows it, in at most width characters.
func (l *listing) cut(text string, width int) string {
	if r := []rune(text); !l.full && len(r) > width {
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

// printList prints the objects that match the filters as a table with a head, as ids, or as JSON. row returns the cells of an
// object, separated by tabs like those of the head.
func printList[T any](w io.Writer, l *listing, objects []T, id func(T) string, head string, row func(T) string) error {
	objects, err := filtered(l, objects)
	if err != nil {
		return err
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
