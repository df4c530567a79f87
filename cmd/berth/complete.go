package main

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// mustComplete sets the completion of a flag, which the command must have.
func mustComplete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}

// completeNames returns a completion of names from an endpoint of the server.
func completeNames[T any](connect func() *client, path string, names func(T) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all struct{ Data []T }
		if err := connect().call(cmd.Context(), http.MethodGet, path, nil, &all); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for _, one := range all.Data {
			for _, name := range names(one) {
				if inLine(name) == name {
					found = append(found, name)
				}
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeModels completes the models of the server.
func completeModels(connect func() *client) cobra.CompletionFunc {
	return completeNames(connect, "/v1/models", func(m berth.Model) []string { return []string{m.ID} })
}

// completeTemplates completes the templates of the server.
func completeTemplates(connect func() *client) cobra.CompletionFunc {
	return completeNames(connect, "/v1/templates", func(t berth.Template) []string { return t.Names })
}

// completeProjects completes the ids and names of the projects in the state directory of a command's --state.
func completeProjects(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	dir := config.DefaultState()
	if f := cmd.Flag("state"); f != nil {
		dir = f.Value.String()
	}
	if !state.HasDatabase(dir) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := projectsIn(cmd.Context(), dir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// projectsIn returns the ids and names of the projects in a state directory.
func projectsIn(ctx context.Context, dir string) ([]cobra.Completion, error) {
	opened, err := state.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	all, err := opened.Projects.ListAll(ctx)
	if err != nil {
		return nil, err
	}
	var found []cobra.Completion
	for _, p := range all {
		if p.Name != "" && inLine(p.Name) == p.Name {
			found = append(found, cobra.CompletionWithDesc(p.Name, string(p.ID)))
		}
		found = append(found, cobra.CompletionWithDesc(shortID(string(p.ID)), inLine(p.Name)))
	}
	return found, nil
}

// completeFirst restricts a completion to the first argument.
func completeFirst(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f(cmd, args, typed)
	}
}

// completeFlags sets the completion of flags that several commands have.
func completeFlags(cmd *cobra.Command) {
	connect := func() *client {
		base, plain := cmd.Flags().Lookup("url"), cmd.Flags().Lookup("plain-http")
		return newClient(base.Value.String(), plain != nil && plain.Value.String() == "true")
	}
	overHTTP := cmd.Flags().Lookup("url") != nil
	for name, f := range map[string]cobra.CompletionFunc{
		"model": completeModels(connect), "template": completeTemplates(connect), "project": completeProjects,
	} {
		if cmd.Flags().Lookup(name) == nil && cmd.PersistentFlags().Lookup(name) == nil ||
			name != "project" && !overHTTP {
			continue
		}
		mustComplete(cmd, name, f)
	}
	if k := cmd.CommandPath(); slices.Contains([]string{"berth project limit", "berth project archive"}, k) {
		cmd.ValidArgsFunction = completeFirst(completeProjects)
	}
	for _, sub := range cmd.Commands() {
		if !strings.HasPrefix(sub.Name(), "__") {
			completeFlags(sub)
		}
	}
}
