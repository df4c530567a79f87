package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// yesFlag adds --yes to a command that asks for confirmation.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
}

// counted returns a number with its noun: "1 container", "2 containers".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// someOf returns the first ids, shortened, for a message.
func someOf(ids []string) string {
	const most = 5
	var short []string
	for _, id := range ids[:min(len(ids), most)] {
		short = append(short, shortID(inLine(id)))
	}
	if len(ids) > most {
		short = append(short, "…")
	}
	return strings.Join(short, ", ")
}

// confirm asks on the terminal whether to do what cannot be undone. It returns an error unless the
// answer is the expected text, and without a terminal.
func confirm(question, expected string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError{errors.New("this cannot be undone, and there is no terminal to ask on; add --yes to confirm")}
	}
	fmt.Fprintf(os.Stderr, "%s\nType %s to confirm: ", question, expected)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if strings.TrimSpace(answer) != expected {
		return errors.Join(errors.New("not confirmed; nothing was changed"), err)
	}
	return nil
}
