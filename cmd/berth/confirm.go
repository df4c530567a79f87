package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

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
