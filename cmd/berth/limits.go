package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/server/config"
)

// A limitFlag is the flag of a limit.
type limitFlag struct {
	name, usage string
	of          func(*config.Limits) **config.Amount
}

var limitFlags = []limitFlag{
	{"requests-per-minute", "requests for responses per minute", func(c *config.Limits) **config.Amount {
		return &c.RequestsPerMinute
	}},
	{"tokens-per-minute", "input and output tokens of models per minute", func(c *config.Limits) **config.Amount {
		return &c.TokensPerMinute
	}},
	{"responses", "responses in progress at once", func(c *config.Limits) **config.Amount {
		return &c.Responses
	}},
	{"containers", "containers running at once", func(c *config.Limits) **config.Amount { return &c.Containers }},
	{"container-minutes", "minutes of all containers per day (UTC)", func(c *config.Limits) **config.Amount {
		return &c.ContainerMinutes
	}},
	{"storage", "bytes of all stored data: responses, conversations, files, snapshots, volumes; such as 10g",
		func(c *config.Limits) **config.Amount {
			return &c.Storage
		}},
	{"snapshots", "snapshots stored at once", func(c *config.Limits) **config.Amount { return &c.Snapshots }},
}

// limitsFlags adds a flag for each limit to a command. It returns a function that returns the
// limits given on the command line.
func limitsFlags(cmd *cobra.Command) func() config.Limits {
	amounts := make([]config.Amount, len(limitFlags))
	for i, f := range limitFlags {
		amounts[i] = config.NoLimit
		cmd.Flags().Var(&amounts[i], f.name, f.usage)
	}
	cost := costFlag(cmd, "cost of models per calendar month (UTC), in the currency of the prices, such as 2.50")
	templates := cmd.Flags().StringSlice("templates", nil,
		"templates that containers may name besides the default one: names, patterns, digests; * allows all, an empty list none")
	environment := cmd.Flags().String("shell-environment", "",
		"where shells without an environment run commands: container, or local, the client's machine")
	return func() (c config.Limits) {
		c.CostPerMonth, c.ShellEnvironment = cost(), *environment
		if cmd.Flags().Changed("templates") {
			c.Templates = append([]string{}, *templates...)
		}
		for i, f := range limitFlags {
			if cmd.Flags().Changed(f.name) {
				*f.of(&c) = &amounts[i]
			}
		}
		return c
	}
}

// costFlag adds the flag --cost-per-month to a command. It returns a function that returns its
// value, or nil if it is not given.
func costFlag(cmd *cobra.Command, usage string) func() *config.Money {
	cost := config.Money(-1)
	cmd.Flags().Var(&cost, "cost-per-month", usage)
	return func() *config.Money {
		if !cmd.Flags().Changed("cost-per-month") {
			return nil
		}
		return &cost
	}
}

// warnUnpriced warns if a budget that was just set counts nothing because no model has a price. The
// command knows the server's configuration only from BERTH_CONFIG.
func warnUnpriced(w io.Writer, budget *config.Money) {
	if budget == nil || *budget < 0 {
		return
	}
	path := os.Getenv(config.FileVariable)
	c, err := server.Load(config.Sources{Path: path})
	switch {
	case path == "" || err != nil:
		fmt.Fprintln(w, "note: only models with prices in the server's configuration count ("+berth.DocsURL+"models.md#prices)")
	case !c.Priced():
		fmt.Fprintf(w,
			"warning: the budget limits nothing, because no upstream in %s has prices (%smodels.md#prices)\n", path,
			berth.DocsURL)
	}
}

// inWords formats the limits that are set, with the names of their flags.
func inWords(l berth.Limits) string {
	c := config.Limits{RequestsPerMinute: (*config.Amount)(l.RequestsPerMinute),
		TokensPerMinute: (*config.Amount)(l.TokensPerMinute),
		Responses:       (*config.Amount)(l.Responses), Containers: (*config.Amount)(l.Containers),
		ContainerMinutes: (*config.Amount)(l.ContainerMinutes),
		Storage:          (*config.Amount)(l.StorageBytes), Snapshots: (*config.Amount)(l.Snapshots)}
	var words []string
	for _, f := range limitFlags {
		if a := *f.of(&c); a != nil {
			words = append(words, f.name+"="+a.String())
		}
	}
	if m := (*config.Money)(l.CostPerMonth); m != nil {
		words = append(words, "cost-per-month="+m.String())
	}
	if l.Templates != nil {
		words = append(words, "templates="+strings.Join(l.Templates, ","))
	}
	if l.ShellEnvironment != "" {
		words = append(words, "shell-environment="+string(l.ShellEnvironment))
	}
	return strings.Join(words, " ")
}
