package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each command with arguments has an example that its flags and arguments accept.
func TestExamples(t *testing.T) {
	used := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if _, known := examples[cmd.CommandPath()]; known {
			used++
		}
		if required, _ := placeholders(cmd); !cmd.HasParent() || len(required) == 0 || cmd.Name() == "help" {
			return
		}
		words := strings.Fields(cmd.Example)
		if len(words) == 0 {
			t.Errorf("%s has no example", cmd.CommandPath())
			return
		}
		root := newRoot()
		found, rest, err := root.Find(words[1:])
		if err != nil || found.CommandPath() != cmd.CommandPath() {
			t.Fatalf("%q: found %s, %v", cmd.Example, found.CommandPath(), err)
		}
		if strings.Contains(cmd.Example, `"`) {
			rest = []string{"a task"}
		}
		if err := found.ParseFlags(rest); err != nil {
			t.Errorf("%q: %v", cmd.Example, err)
		}
		if err := found.Args(found, found.Flags().Args()); err != nil {
			t.Errorf("%q: %v", cmd.Example, err)
		}
	}
	check(newRoot())
	if used != len(examples) {
		t.Errorf("%d of %d examples belong to a command", used, len(examples))
	}
}

// Errors in the number of arguments name the missing or the superfluous one, and show an example.
func TestArgumentErrors(t *testing.T) {
	for line, want := range map[string]string{
		"exec":          "CONTAINER and COMMAND are missing\nusage: berth exec [flags] CONTAINER COMMAND [ARG...]\nexample: berth exec box ls -la\n",
		"exec box":      "COMMAND is missing\n",
		"cp a":          "DESTINATION is missing\n",
		"cp a b c":      `unexpected argument "c"` + "\n",
		"rm":            "CONTAINER is missing\n",
		"port box":      "[LOCAL:]PORT is missing\n",
		"ps box":        `unexpected argument "box"` + "\n",
		"volume ls x":   `unexpected argument "x"` + "\n",
		"volume list x": `unexpected argument "x"` + "\n",
		"create a b":    `unexpected argument "b"` + "\n",
		"run":           "berth run needs one TASK, in quotes\n",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(line))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("berth %s: got %v, want %q", line, err, want)
		}
	}
}
