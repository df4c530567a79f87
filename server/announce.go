package server

import (
	"context"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/templates"
)

// announce logs what the server serves, and what it lacks with the command that provides it. plan
// is how it makes its template, or nil.
func (s *Server) announce(o Options, address string, plan *templates.Plan) {
	c := o.Config
	found, missing := s.template()
	models := s.reloader.models.Patterns
	name := found
	switch {
	case plan != nil && plan.Archive != "":
		name = "loading"
	case plan != nil:
		name = "building"
	case missing != nil:
		name = "none"
	}
	keys := "required"
	if s.open {
		keys = "none"
	}
	s.log.Info("serving", "url", s.scheme()+"://"+address+"/v1", "models", strings.Join(models, " "), "driver",
		c.Driver, "template", name,
		"keys", keys, "state", o.State, "version", o.Build.Version)
	for _, w := range c.Warnings() {
		s.log.Warn("suspicious configuration", "problem", w)
	}
	if s.unpriced(c) {
		s.log.Warn("a limit of costs has no effect", "problem", "a project or a key has a limit of costs that "+
			config.WithoutPrices, "next", berth.DocsURL+"models.md#prices")
	}
	switch {
	case plan != nil && plan.Archive != "":
		s.log.Info("loading the template in the background, for less than a minute; containers start once it is ready",
			"template", plan.Name, "archive", plan.Archive, "off", "BERTH_BUILD_TEMPLATE=never")
	case plan != nil:
		s.log.Info("building the base template in the background, for some minutes; containers start once it is ready",
			"off", "BERTH_BUILD_TEMPLATE=never")
	case missing != nil:
		s.log.Warn("containers cannot start without a template", "template", c.Template, "next",
			templates.Advice(c, o.State), "err", missing)
	}
	if len(models) == 1 {
		s.log.Warn("no model upstream is configured: only the demo model scripted answers",
			"next", "set OPENAI_BASE_URL, ANTHROPIC_API_KEY or GEMINI_API_KEY, or configure models")
	}
	switch {
	case s.unused && !s.open:
		s.log.Warn("there is no API key yet: every request is refused until there is one", "next", "berth key create")
	case s.open:
		s.log.Warn("there is no API key: every user of this machine can use this server", "next", "berth key create")
	}
	size, hash := checkpointOf(s.record.Checkpoint())
	s.log.Info("opened audit record", "entries", size, "hash", hash)
}

// unpriced reports whether a project or a key has a limit of costs that are not counted.
func (s *Server) unpriced(c *config.Config) bool {
	if c.Priced() || len(c.UnpricedBudgets()) > 0 { // the latter is among the warnings already
		return false
	}
	spent, err := s.spending(context.Background())
	return err == nil && slices.ContainsFunc(spent, func(s project.Spend) bool { return s.Limit != nil })
}

// checkpointOf returns the number of entries and the last hash of a checkpoint.
func checkpointOf(signed string) (size, hash string) {
	if lines := strings.SplitN(signed, "\n", 4); len(lines) == 4 {
		return lines[1], lines[2]
	}
	return "0", ""
}
