package model

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// listTimeout bounds how long an upstream may take to say which models it has.
const listTimeout = 3 * time.Second

// A Rule sends the models whose names match to a provider.
type Rule struct {
	Match    string // a name, or a pattern as in path.Match: "gpt-*", "*"
	Provider Provider
	Upstream string           // the provider's name for the model; empty is the same name
	Window   int              // the tokens that the model's context holds with its answer; 0 is unknown
	About    berth.ModelBerth // what the list of models tells of it; its window is Window
}

// A Router finds the provider of a model: the first rule that matches. It is safe
// for concurrent use and does not change.
type Router struct {
	rules []Rule
	log   *slog.Logger
}

// NewRouter returns a router; a pattern that is not valid is an error.
func NewRouter(log *slog.Logger, rules ...Rule) (*Router, error) {
	for _, r := range rules {
		if _, err := path.Match(r.Match, ""); err != nil {
			return nil, fmt.Errorf("model pattern %q: %w", r.Match, err)
		}
	}
	return &Router{rules: rules, log: log}, nil
}

// Route returns the provider of a model and the provider's own name for it. A
// name that no rule matches is CodeNotFound.
func (r *Router) Route(name string) (Provider, string, error) {
	for _, rule := range r.rules {
		if rule.matches(name) {
			if rule.Upstream != "" {
				return rule.Provider, rule.Upstream, nil
			}
			return rule.Provider, name, nil
		}
	}
	return nil, "", &berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Param: "model",
		Message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", name)}
}

// Window returns how many tokens a model's context holds with its answer; 0 is
// unknown.
func (r *Router) Window(name string) int {
	for _, rule := range r.rules {
		if rule.matches(name) {
			return rule.Window
		}
	}
	return 0
}

func (r Rule) matches(name string) bool { return Matches(r.Match, name) }

// Matches reports whether a model's name is the pattern, or fits it as in
// path.Match, where * stands for slashes too: "vendor/model" is a name like any
// other.
func Matches(pattern, name string) bool {
	if pattern == "*" || pattern == name {
		return true
	}
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	ok, err := path.Match(flat(pattern), flat(name))
	return ok && err == nil
}

// Models lists the names that can be asked for: those that rules spell out, and
// those that providers list and a rule sends to them, each with what its rule says
// of it. A provider that does not answer is left out, with a word in the log.
func (r *Router) Models(ctx context.Context) ([]berth.Model, error) {
	found := map[string]berth.Model{}
	for _, rule := range r.rules {
		if !strings.ContainsAny(rule.Match, "*?[") {
			found[rule.Match] = berth.Model{ID: rule.Match, Object: "model", OwnedBy: "berth"}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for lister := range r.listers() {
		all.Go(func() {
			models, err := lister.Models(ctx)
			if err != nil {
				r.log.Warn("a provider does not list its models", "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range models {
				if p, _, err := r.Route(m.ID); err == nil && p == lister.(Provider) {
					found[m.ID] = m
				}
			}
		})
	}
	all.Wait()
	for id, m := range found {
		found[id] = r.describe(m)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b berth.Model) int { return strings.Compare(a.ID, b.ID) }), nil
}

// Model returns the model that a rule routes under a name, whether or not its provider
// lists it. A name that no rule matches is CodeNotFound.
func (r *Router) Model(ctx context.Context, name string) (berth.Model, error) {
	if _, _, err := r.Route(name); err != nil {
		return berth.Model{}, err
	}
	all, err := r.Models(ctx)
	if err != nil {
		return berth.Model{}, err
	}
	if n := slices.IndexFunc(all, func(m berth.Model) bool { return m.ID == name }); n >= 0 {
		return all[n], nil
	}
	return r.describe(berth.Model{ID: name, Object: "model", OwnedBy: "berth"}), nil
}

// describe returns a model with what its rule says of it.
func (r *Router) describe(m berth.Model) berth.Model {
	n := slices.IndexFunc(r.rules, func(rule Rule) bool { return rule.matches(m.ID) })
	about := r.rules[n].About
	about.ContextWindow = r.rules[n].Window
	m.Berth = &about
	return m
}

func (r *Router) listers() map[Lister]bool {
	set := map[Lister]bool{}
	for _, rule := range r.rules {
		if l, ok := rule.Provider.(Lister); ok {
			set[l] = true
		}
	}
	return set
}
