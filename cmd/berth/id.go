package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// A kind is a kind of object that commands select by id, by a part of one, or by name.
type kind struct {
	what   string // in messages
	path   string // of its list endpoint
	prefix string // of its ids
	newest int    // how many objects are searched, the newest first; 0 means all
}

var (
	containers   = kind{"container", "/v1/containers", berth.PrefixContainer, 0}
	snapshots    = kind{"snapshot", "/v1/snapshots", berth.PrefixSnapshot, 0}
	volumes      = kind{"volume", "/v1/volumes", berth.PrefixVolume, 0}
	files        = kind{"file", "/v1/files", berth.PrefixFile, 0}
	vectorStores = kind{"vector store", "/v1/vector_stores", berth.PrefixVectorStore, 0}
	responses    = kind{"response", "/v1/responses", berth.PrefixResponse, 1000}
)

// idDigits is the number of hexadecimal digits of an id, and shortDigits that of a short one. A
// short id has the last digits: the first ones are the time.
const idDigits, shortDigits = 48, 8

// shortID shortens an id for a table: cntr_ and the last digits. It returns other ids, such as
// those of projects that users choose, unchanged.
func shortID(id string) string {
	cut := strings.LastIndexAny(id, "_-") + 1
	if len(id)-cut != idDigits {
		return id // chosen by a user
	}
	return id[:cut] + id[len(id)-shortDigits:]
}

// idPattern matches ids. They become parts of file names and URLs.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// errNotFound is the error for a reference that selects nothing.
var errNotFound = errors.New("not found")

// An object is what the listings of all kinds have in common.
type object struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Filename string `json:"filename"`
	Status   string `json:"status"`
	Berth    struct {
		UniqueName bool `json:"unique_name"`
	} `json:"berth"`
}

func (o *object) name() string { return o.Name + o.Filename }

func (o *object) ended() bool {
	return o.Status == string(berth.ContainerExpired) || o.Status == string(berth.ContainerDeleted)
}

// resolve returns the id of the object that ref selects: an id, the start or the end of one with
// or without its prefix, or a name. An object that has not ended wins over one that has, and a
// container with a unique name over others with the name. A full id is returned unchecked.
func (k kind) resolve(ctx context.Context, c *client, ref string) (string, error) {
	digits := strings.TrimPrefix(ref, k.prefix)
	if len(digits) == idDigits && digits != ref {
		return ref, nil
	}
	if ref == "" {
		return "", fmt.Errorf("empty %s id", k.what)
	}
	all, err := listFor[object](ctx, c, k.path, &listing{limit: k.newest})
	if err != nil {
		return "", err
	}
	var named, partly []*object
	for i := range all {
		o := &all[i]
		if !idPattern.MatchString(o.ID) {
			return "", fmt.Errorf("the server lists a %s with the id %q, which is no id", k.what, o.ID)
		}
		switch rest := strings.TrimPrefix(o.ID, k.prefix); {
		case o.ID == ref:
			return ref, nil
		case o.name() == ref:
			named = append(named, o)
		case matches(rest, digits):
			partly = append(partly, o)
		}
	}
	for _, found := range [][]*object{named, partly} {
		if live := alive(found); len(live) > 0 {
			found = live
		}
		if handle := slices.IndexFunc(found, func(o *object) bool {
			return o.Name == ref && o.Berth.UniqueName && !o.ended()
		}); handle >= 0 {
			return found[handle].ID, nil
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0].ID, nil
		}
		return "", k.ambiguous(ref, found)
	}
	if k.newest > 0 && len(all) >= k.newest {
		return "", fmt.Errorf("%s %q %w: no id of the newest %d starts or ends with it; use the full id", k.what, ref,
			errNotFound, k.newest)
	}
	if k.what == responses.what {
		return "", fmt.Errorf("%s %q %w: no id starts or ends with it", k.what, ref, errNotFound)
	}
	return "", fmt.Errorf("%s %q %w: no id starts or ends with it, and no %s has that name", k.what, ref, errNotFound,
		k.what)
}

func alive(objects []*object) []*object {
	var live []*object
	for _, o := range objects {
		if !o.ended() {
			live = append(live, o)
		}
	}
	return live
}

func (k kind) ambiguous(ref string, found []*object) error {
	ids := make([]string, len(found))
	for i, o := range found {
		ids[i] = o.ID
	}
	return ambiguous(k.what, ref, ids)
}

// ambiguous is the error for a reference that selects several objects.
func ambiguous(what, ref string, ids []string) error {
	return fmt.Errorf("%d %s match %q; use the id of one: %s", len(ids), plural(what), ref, someOf(ids))
}

// matches reports whether digits are the start or the end of an id without its prefix.
func matches(id, digits string) bool {
	return digits != "" && (strings.HasPrefix(id, digits) || strings.HasSuffix(id, digits))
}

// complete returns a completion of ids and names for the first n arguments; n < 0 means all.
func (k kind) complete(connect func() *client, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault
		}
		all, err := listFor[object](cmd.Context(), connect(), k.path, &listing{limit: min(k.newest, 100)})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for _, o := range all {
			if o.ended() {
				continue
			}
			found = append(found, cobra.CompletionWithDesc(shortID(o.ID), inLine(o.name())))
			if o.name() != "" && inLine(o.name()) == o.name() {
				found = append(found, cobra.CompletionWithDesc(o.name(), o.ID))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
