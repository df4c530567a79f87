package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// newMan returns the command with which make install and releases write the manual pages.
func newMan() *cobra.Command {
	return &cobra.Command{Use: "man DIRECTORY", Short: "Write the manual pages into a directory", Hidden: true,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := newRoot()
			manual(root)
			// The date is that of SOURCE_DATE_EPOCH if it is set, so that a release has the same bytes.
			header := &doc.GenManHeader{Section: "1", Source: "Berth " + version, Manual: "Berth"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		}}
}

// manualState is the default of --state in the manual, whoever writes it.
const manualState = "/var/lib/berth as root, else ~/.local/state/berth"

// manual prepares a command and its subcommands for the manual: their help becomes Markdown, and no default is that
// of the environment.
func manual(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	cmd.Long, cmd.Example = asMarkdown(cmd.Long), strings.TrimSpace(cmd.Example)
	flags := func(f *pflag.Flag) {
		f.Usage = manualEscapes.Replace(f.Usage)
		switch f.Name {
		case "state":
			f.DefValue = manualState
		case "model", "config":
			f.DefValue = ""
		}
	}
	cmd.LocalFlags().VisitAll(flags)
	for _, sub := range cmd.Commands() {
		manual(sub)
	}
}

// manualEscapes escapes the characters that mark up Markdown.
var manualEscapes = strings.NewReplacer("*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, "[", `\[`)

// asMarkdown returns a text of the help as Markdown. Indented lines are examples and tables, whose lines stay.
func asMarkdown(help string) string {
	var b strings.Builder
	var inBlock bool
	for line := range strings.Lines(help) {
		block := strings.HasPrefix(line, "  ") || inBlock && strings.TrimSpace(line) == ""
		if block != inBlock {
			b.WriteString("\n```\n")
			if !block {
				b.WriteString("\n")
			}
			inBlock = block
		}
		if !block {
			line = manualEscapes.Replace(line)
		}
		b.WriteString(line)
	}
	if inBlock {
		b.WriteString("\n```\n")
	}
	return b.String()
}
