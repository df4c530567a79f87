package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. Commands that run a program in a container exit with its code instead.
const (
	exitFailed     = 1
	exitUsage      = 2 // wrong flags or arguments
	exitIncomplete = 3 // of berth run: the response is incomplete
	exitInterrupt  = 130
)

// A usageError is an error in the flags or arguments of a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// strict makes wrong flags and arguments of a command and its subcommands usage errors, which show
// how the command is used. A group of commands refuses unknown ones.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{withUsage(cmd, err)} })
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usageError{unknownCommand(cmd, args[0])}
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{withUsage(cmd, err)}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

func withUsage(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w\nusage: %s\nberth%s --help shows more", err, cmd.UseLine(), strings.TrimPrefix(cmd.CommandPath(), "berth"))
}

// unknownCommand returns the error for an unknown subcommand, with similar ones.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath())
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(similar, " or "))
	}
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return fmt.Errorf("%w; it has %s", err, strings.Join(all, ", "))
}
