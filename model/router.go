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
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
)

// listTimeout bounds how long an upstream may take to list its models.
const listTimeout = 3 * time.Second

// A Rule sends the models whose names match to a provider.
type Rule struct {
	Match    string // a name, or a pattern as in path.Match: "gpt-*", "*"
	Provider Provider
	// Upstream is the provider's name for the model; empty means the same name.
	Upstream string
	// Window is the model's context window in tokens, its output included; 0 means
	// unknown.
	Window int
	// About is what the list of models shows of it. Its window is Window.
	About berth.ModelBerth
}

// A Router finds the provider of a model: the first rule that matches. It is safe for
// concurrent use.
type Router struct {
	rules atomic.Pointer[[]Rule] // the slice does not change
	log   *slog.Logger
}

// NewRouter returns a router. It returns an error if a pattern is invalid.
func NewRouter(log *slog.Logger, rules ...Rule) (*Router, error) {
	for _, r := range rules {
		if _, err := path.Match(r.Match, ""); err != nil {
			return nil, fmt.Errorf("model pattern %q: %w", r.Match, err)
		}
	}
	r := &Router{log: log}
	r.rules.Store(&rules)
	return r, nil
}

// Adopt replaces the rules by those of another router. Requests in progress keep their
// provider.
func (r *Router) Adopt(other *Router) { r.rules.Store(other.rules.Load()) }

// Route returns the provider of a model and the provider's name for it. It returns
// CodeNotFound if no rule matches.
func (r *Router) Route(name string) (Provider, string, error) {
	for _, rule := range *r.rules.Load() {
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

// Window returns a model's context window in tokens, its output included; 0 means
// unknown.
func (r *Router) Window(name string) int {
	for _, rule := range *r.rules.Load() {
		if rule.matches(name) {
			return rule.Window
		}
	}
	return 0
}

func (r Rule) matches(name string) bool { return Matches(r.Match, name) }

// Matches reports whether a model's name equals the pattern or matches it as in
// path.Match. Unlike there, * matches slashes too: "vendor/model" is a plain name.
func Matches(pattern, name string) bool {
	if pattern == "*" || pattern == name {
		return true
	}
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	ok, err := path.Match(flat(pattern), flat(name))
	return ok && err == nil
}

// Models lists the models that clients can use: those that rules name exactly, and
// those that providers list and a rule routes to them. Each has its rule's
// description. A provider that fails is logged and left out.
func (r *Router) Models(ctx context.Context) ([]berth.Model, error) {
	found := map[string]berth.Model{}
	for _, rule := range *r.rules.Load() {
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
				r.log.Warn("failed to list a provider's models", "err", err)
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
// lists it. It returns CodeNotFound if no rule matches.
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

// describe returns a model with its rule's description.
func (r *Router) describe(m berth.Model) berth.Model {
	rules := *r.rules.Load()
	n := slices.IndexFunc(rules, func(rule Rule) bool { return rule.matches(m.ID) })
	if n < 0 { // the rules have been replaced
		return m
	}
	about := rules[n].About
	about.ContextWindow = rules[n].Window
	m.Berth = &about
	return m
}

func (r *Router) listers() map[Lister]bool {
	set := map[Lister]bool{}
	for _, rule := range *r.rules.Load() {
		if l, ok := rule.Provider.(Lister); ok {
			set[l] = true
		}
	}
	return set
}
