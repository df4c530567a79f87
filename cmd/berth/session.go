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
	out := cmd.Flags().StringP("output", "o", "", `file to write; "-" is standard output. Default: RESPONSE.tar`)
	force := cmd.Flags().Bool("force", false, "replace an existing file")
	without := cmd.Flags().Bool("no-container", false, "leave the container out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "/v1/responses/" + url.PathEscape(args[0]) + "/bundle"
		if *without {
			path += "?container=false"
		}
		resp, err := connect().do(cmd.Context(), "GET", path, "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if *out == "-" {
			if term.IsTerminal(int(os.Stdout.Fd())) {
				return errors.New("cannot write a bundle to a terminal: name a file with --output")
			}
			_, err := io.Copy(cmd.OutOrStdout(), resp.Body)
			return err
		}
		if *out == "" {
			*out = args[0] + ".tar"
		}
		n, err := saveAt(*out, resp.Body, 0o600, *force) // it may have private content
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
			fmt.Fprintf(cmd.ErrOrStderr(), "the template %s is not here: bring it with berth image save and load before the container is used\n", inLine(done.Template))
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
		Long: `Do a chain again, in a new container. What the model said is taken from the record, and
no model is asked; the first difference is printed, and the exit code is 1 if there is one.
With --model that model is asked instead, and what it did is shown beside the record.`,
		Args: cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	model := cmd.Flags().String("model", "", "model to ask instead of the record")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var done bundle.Replay
		body := map[string]string{}
		if *model != "" {
			body["model"] = *model
		}
		if err := connect().call(cmd.Context(), "POST", "/v1/responses/"+url.PathEscape(args[0])+"/replay", body, &done); err != nil {
			return err
		}
		if *model != "" {
			return besides(cmd.OutOrStdout(), &done)
		}
		return differs(cmd.OutOrStdout(), &done)
	}
	return cmd
}

// differs prints the first difference of a replay and returns an error.
func differs(w io.Writer, r *bundle.Replay) error {
	if r.Divergence == nil {
		fmt.Fprintf(w, "%d responses, as recorded\n", len(r.Responses))
		return nil
	}
	d := r.Divergence
	fmt.Fprintf(w, "%s differs at its item %d\n", d.ResponseID, d.Item)
	for _, side := range []struct{ mark, text string }{{"- ", d.Recorded}, {"+ ", d.Replayed}} {
		for line := range strings.SplitSeq(strings.TrimRight(side.text, "\n"), "\n") {
			fmt.Fprintln(w, side.mark+strings.Map(printable, line))
		}
	}
	return errors.New("the replay differs from the record")
}

// besides prints the record and the replay side by side.
func besides(w io.Writer, r *bundle.Replay) error {
	const width = 60
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, one := range r.Responses {
		fmt.Fprintf(out, "%s\t%s\n", one.ID, r.Model)
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
