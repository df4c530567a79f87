package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/bundle"
)

// newSession returns the commands that export, import and replay a chain of responses with its
// container.
func newSession() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Export, import and replay a chain of responses with its container",
	}
	cmd.AddCommand(newSessionExport(), newSessionImport(), newSessionReplay())
	return cmd
}

func newSessionExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export RESPONSE",
		Short: "Export the chain that ends with a response, with its files and container, to a file",
		Args:  cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	out := cmd.Flags().StringP("output", "o", "", `file to write, or "-" for standard output (default: RESPONSE.tar)`)
	force := cmd.Flags().Bool("force", false, "replace an existing file")
	without := cmd.Flags().Bool("no-container", false, "exclude the container")
	cmd.ValidArgsFunction = responses.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := responses.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		path := "/v1/responses/" + url.PathEscape(id) + "/bundle"
		if *without {
			path += "?container=false"
		}
		resp, err := c.do(cmd.Context(), "GET", path, "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if *out == "-" {
			if term.IsTerminal(int(os.Stdout.Fd())) {
				return errors.New("refusing to write a bundle to a terminal; name a file with --output")
			}
			_, err := io.Copy(cmd.OutOrStdout(), resp.Body)
			return err
		}
		if *out == "" {
			*out = id + ".tar"
		}
		n, err := saveAt(*out, resp.Body, 0o600, *force) // may contain private data
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s  %d bytes\n", *out, n)
		}
		return err
	}
	return cmd
}

func newSessionImport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import an exported chain and print the id of the response to continue",
		Args:  cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := cmd.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		var done bundle.Imported
		if err := connect().send(cmd.Context(), "POST", "/v1/bundles", bundle.ContentType, in, &done); err != nil {
			return err
		}
		if done.Missing {
			fmt.Fprintf(cmd.ErrOrStderr(),
				"this server lacks the template %s; copy it with berth image save and load before using the container\n",
				inLine(done.Template))
		}
		fmt.Fprintln(cmd.OutOrStdout(), done.ResponseID)
		return nil
	}
	return cmd
}

func newSessionReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay RESPONSE",
		Short: "Replay a chain from its record, or with another model, and show the differences",
		Long: `Repeat a chain in a new container. The model's output comes from the record, and no model
is called. The first difference is printed; then the exit code is 1. With --model, that model
is called instead, and its output is shown beside the record.`,
		Args: cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	model := cmd.Flags().String("model", "", "model to call instead of using the record")
	cmd.ValidArgsFunction = responses.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := responses.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		var done bundle.Replay
		body := map[string]string{}
		if *model != "" {
			body["model"] = *model
		}
		if err := c.call(cmd.Context(), "POST", "/v1/responses/"+url.PathEscape(id)+"/replay", body,
			&done); err != nil {
			return err
		}
		if *model != "" {
			return printBoth(cmd.OutOrStdout(), &done)
		}
		return differs(cmd.OutOrStdout(), &done)
	}
	return cmd
}

// differs prints the first difference of a replay and returns an error.
func differs(w io.Writer, r *bundle.Replay) error {
	if r.Divergence == nil {
		noun := "responses"
		if len(r.Responses) == 1 {
			noun = "response"
		}
		fmt.Fprintf(w, "%d %s, no difference\n", len(r.Responses), noun)
		return nil
	}
	d := r.Divergence
	fmt.Fprintf(w, "%s differs at item %d\n", d.ResponseID, d.Item)
	for _, side := range []struct{ mark, text string }{{"- ", d.Recorded}, {"+ ", d.Replayed}} {
		for line := range strings.SplitSeq(strings.TrimRight(side.text, "\n"), "\n") {
			fmt.Fprintln(w, side.mark+strings.Map(printable, line))
		}
	}
	return errors.New("the replay differs from the record")
}

// columnWidth returns the width of each of two columns on the terminal, or in 80 characters.
func columnWidth() int {
	cols, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || cols < 42 {
		cols = 80
	}
	return (cols - 2) / 2
}

// printBoth prints the record and the replay side by side.
func printBoth(w io.Writer, r *bundle.Replay) error {
	width := columnWidth()
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, one := range r.Responses {
		fmt.Fprintf(out, "RECORD %s\tREPLAY with %s\n", shortID(string(one.ID)), inLine(r.Model))
		was, is := folded(one.Recorded, width), folded(one.Replayed, width)
		for i := range max(len(was), len(is)) {
			var left, right string
			if i < len(was) {
				left = was[i]
			}
			if i < len(is) {
				right = is[i]
			}
			fmt.Fprintf(out, "%s\t%s\n", left, right)
		}
		if one.Error != "" {
			fmt.Fprintf(out, "\t! %s\n", inLine(one.Error))
		}
	}
	return out.Flush()
}

// folded wraps text into lines of at most this many characters, without control characters.
func folded(texts []string, width int) []string {
	var lines []string
	for _, text := range texts {
		for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
			runes := []rune(strings.Map(printable, strings.ReplaceAll(line, "\t", " ")))
			for len(runes) > width {
				lines = append(lines, string(runes[:width]))
				runes = runes[width:]
			}
			lines = append(lines, string(runes))
		}
	}
	return lines
}
