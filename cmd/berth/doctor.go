package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/doctor"
)

func newDoctor() *cobra.Command {
	var asJSON, fix, clients bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can run",
		Long: `Check what this machine can run: the kernel, a real sandbox if there is a template, the
state directory, the configuration, and whether each model upstream answers, accepts its
key and lists the models that are routed to it. The first line is the answer; then comes what was
found, and what is missing with the command that provides it. With --fix, make the state
directory if it is missing, and run these commands. The exit code is 1 if berth serve could not start containers, or not reach a model.

With --clients, print instead the lines that point Claude Code, codex, Cursor, VS Code, opencode and Open WebUI to the
server of BERTH_URL or berth login.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if clients {
				return printClients(cmd.OutOrStdout(), asJSON)
			}
			findings, err := examine(cmd)
			for tries := 0; err == nil && fix && tries < maxFixes; tries++ { // a fix may reveal what else is missing
				next := fixOf(findings)
				if next == nil {
					break
				}
				if err = makeState(cmd); err != nil {
					return err
				}
				if err = runFix(cmd, next); err != nil {
					return err
				}
				findings, err = examine(cmd)
			}
			if err != nil {
				return err
			}
			missing, err := missingState(cmd)
			if err != nil {
				return err
			}
			if err := report(cmd.OutOrStdout(), findings, missing, asJSON); err != nil {
				return err
			}
			for _, f := range findings {
				if !f.OK {
					return exitError(1)
				}
			}
			return nil
		},
	}
	cmd.Flags().String("state", config.DefaultState(), "directory for all state")
	configFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&clients, "clients", false, "print how clients reach the server")
	cmd.Flags().BoolVar(&fix, "fix", false, "run the commands that provide what is missing")
	cmd.MarkFlagsMutuallyExclusive("clients", "fix")
	return cmd
}

// maxFixes bounds the commands of one berth doctor --fix.
const maxFixes = 4

// examine examines this machine for the configuration of a command.
func examine(cmd *cobra.Command) ([]doctor.Finding, error) {
	c, problem := loadConfig(cmd)
	if problem == nil {
		problem = server.Verify(c)
	}
	state, err := stateOf(cmd, c)
	return doctor.Examine(cmd.Context(), state, c, problem), err
}

// stateOf returns the state directory of a configuration, which may be nil.
func stateOf(cmd *cobra.Command, c *config.Config) (string, error) {
	state := cmd.Flag("state").Value.String()
	if c != nil {
		state = c.State
	}
	return filepath.Abs(state)
}

// missingState returns the state directory if it does not exist, or "".
func missingState(cmd *cobra.Command) (string, error) {
	c, _ := loadConfig(cmd) // examine reports its error
	state, err := stateOf(cmd, c)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return state, nil
}

// makeState makes the state directory, in which the commands of --fix work.
func makeState(cmd *cobra.Command) error {
	state, err := missingState(cmd)
	if err != nil || state == "" {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "making the state directory", state)
	return os.MkdirAll(state, 0o700)
}

// shellCommand returns a berth command as a shell reads it. It first makes the missing state directory, if there is
// one, because only berth serve and berth restore make it.
func shellCommand(args []string, missing string) string {
	words := []string{"berth"}
	if missing != "" {
		words = []string{"mkdir", "-p", "-m", "700", shellWord(missing), "&&", "berth"}
	}
	for _, arg := range args {
		words = append(words, shellWord(arg))
	}
	return strings.Join(words, " ")
}

// plainWord matches a word that a shell reads as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWord quotes a word for a shell.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// fixOf returns the first command that fixes a failed check.
func fixOf(findings []doctor.Finding) []string {
	for _, f := range findings {
		if !f.OK && f.Fix != nil {
			return f.Fix
		}
	}
	return nil
}

// runFix runs a berth command.
func runFix(cmd *cobra.Command, args []string) error {
	fmt.Fprintln(cmd.ErrOrStderr(), "running: berth", strings.Join(args, " "))
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(cmd.ErrOrStderr())
	root.SetErr(cmd.ErrOrStderr())
	return root.ExecuteContext(cmd.Context())
}

// verdict says whether the machine can run containers, and what to do if it cannot.
func verdict(findings []doctor.Finding, missing string) string {
	var failed, fixable, models []string
	for _, f := range findings {
		if f.OK {
			continue
		}
		if f.Models {
			models = append(models, f.What)
			continue
		}
		if failed = append(failed, f.What); f.Fix != nil {
			fixable = append(fixable, f.What)
		}
	}
	switch {
	case len(failed) == 0 && len(models) > 0:
		return "This machine is ready: containers start. Not all models answer; see: " + strings.Join(models,
			", ") + "."
	case len(failed) == 0:
		return "This machine is ready: containers start."
	case len(failed) == len(fixable):
		return "This machine can run Berth; still missing: " + strings.Join(failed, ", ") + ".\nnext: " +
			shellCommand(fixOf(findings), missing) + "   (or berth doctor --fix)"
	}
	return "This machine cannot start containers yet; see: " + strings.Join(failed, ", ") + "."
}

func report(w io.Writer, findings []doctor.Finding, missing string, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(findings)
	}
	fmt.Fprintln(w, verdict(findings, missing))
	fmt.Fprintln(w)
	for _, f := range findings {
		mark := "ok  "
		switch {
		case !f.OK && f.Fix != nil:
			mark, f.Advice = "next", shellCommand(f.Fix, missing)
		case !f.OK:
			mark = "FAIL"
		case f.Advice != "":
			mark = "note"
		}
		fmt.Fprintf(w, "%s  %-14s %s\n", mark, f.What, indented(f.Detail))
		if f.Advice != "" {
			fmt.Fprintf(w, "      %-14s %s\n", "", indented(f.Advice))
		}
	}
	if !slices.ContainsFunc(findings, func(f doctor.Finding) bool { return !f.OK }) {
		fmt.Fprintln(w, "\nberth doctor --clients prints how Claude Code, codex and other clients reach the server.")
	}
	return nil
}

// indented indents further lines of a finding.
func indented(text string) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 21))
}
