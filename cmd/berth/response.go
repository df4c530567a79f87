package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newResponse() *cobra.Command {
	cmd := &cobra.Command{Use: "response", Short: "Show, cancel and delete responses"}
	get := &cobra.Command{
		Use:   "get RESPONSE",
		Short: "Print the answer of a response and its status",
		Args:  cobra.ExactArgs(1),
	}
	connect := clientFlags(get)
	asJSON := get.Flags().Bool("json", false, "print the whole response as JSON")
	get.RunE = func(cmd *cobra.Command, args []string) error {
		path := "/v1/responses/" + url.PathEscape(args[0])
		if *asJSON {
			return connect().printObject(cmd, path)
		}
		var r berth.Response
		if err := connect().call(cmd.Context(), "GET", path, nil, &r); err != nil {
			return err
		}
		if text := answer(&r); text != "" {
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s  model %s\n", inLine(string(r.ID)), r.Status, inLine(r.Model))
		return nil
	}
	cmd.AddCommand(get,
		newResponseAction("cancel", "Cancel responses that run in the background", "POST", "/cancel"),
		newResponseAction("rm", "Delete responses", "DELETE", ""))
	return cmd
}

// newResponseAction returns a command that sends one request for each response.
func newResponseAction(use, short, method, suffix string) *cobra.Command {
	cmd := &cobra.Command{Use: use + " RESPONSE...", Short: short, Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		c := connect()
		return each(ids, func(id string) error {
			return c.call(cmd.Context(), method, "/v1/responses/"+url.PathEscape(id)+suffix, nil, nil)
		})
	}
	return cmd
}
