package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// badUsage returns a usageError with a formatted message.
func badUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// strict makes wrong flags and arguments of a command and its subcommands usage errors, which show
// how the command is used. A group of commands refuses unknown ones. Each ls is also called list.
func strict(cmd *cobra.Command) {
	if cmd.Name() == "ls" && !cmd.HasAlias("list") {
		cmd.Aliases = append(cmd.Aliases, "list")
	}
	if example := examples[cmd.CommandPath()]; example != "" && cmd.Example == "" {
		cmd.Example = "  " + example
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{withUsage(cmd, flagError(err))}
	})
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usageError{unknownCommand(cmd, args[0])}
		}
	}
	check := cmd.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		// Cobra checks flags after the arguments, and its errors have no type.
		for _, err := range []error{check(cmd, args), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()} {
			if err != nil {
				return usageError{withUsage(cmd, argumentError(cmd, args, err))}
			}
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// strictHelp makes the help command refuse unknown commands. Cobra's succeeds.
func strictHelp(root *cobra.Command) {
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run = nil
		help.RunE = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return usageError{err}
			case len(rest) > 0:
				return usageError{unknownCommand(cmd, rest[0])}
			}
			return cmd.Help()
		}
	}
}

// flagError returns pflag's error with the name of the flag and the values that it allows, in place of Go's types.
func flagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f := invalid.GetFlag()
	expected := map[string]string{
		"duration": "must be a duration, such as 90s, 20m, 12h or 30d",
		"int":      "must be a whole number",
		"bool":     "must be true or false",
	}[f.Value.Type()]
	if expected != "" {
		return fmt.Errorf("--%s: %q %s", f.Name, invalid.GetValue(), expected)
	}
	return fmt.Errorf("--%s: %w", f.Name, errors.Unwrap(invalid))
}

// unknownCommand returns the error for an unknown subcommand, with similar ones.
func unknownCommand(cmd *cobra.Command, name string) error {
	if err := habit(cmd, name); err != nil {
		return err
	}
	cmd.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath())
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(similar, " or "))
	}
	if !cmd.HasParent() {
		return fmt.Errorf("%w; berth --help lists the commands", err)
	}
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return fmt.Errorf("%w; it has %s", err, strings.Join(all, ", "))
}
