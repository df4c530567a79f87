package main

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newResponse() *cobra.Command {
	cmd := &cobra.Command{Use: "response", Short: "List, show, cancel and delete responses"}
	get := &cobra.Command{
		Use:   "get RESPONSE",
		Short: "Print the answer of a response and its status",
		Args:  cobra.ExactArgs(1),
	}
	connect := clientFlags(get)
	asJSON := get.Flags().Bool("json", false, "print the whole response as JSON")
	get.ValidArgsFunction = responses.complete(connect, 1)
	get.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := responses.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		path := "/v1/responses/" + url.PathEscape(id)
		if *asJSON {
			return c.printObject(cmd, path)
		}
		var r berth.Response
		if err := c.call(cmd.Context(), "GET", path, nil, &r); err != nil {
			return err
		}
		if text := answer(&r); text != "" {
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s  model %s\n", inLine(string(r.ID)), r.Status, inLine(r.Model))
		return nil
	}
	cmd.AddCommand(newResponseLs(), get,
		newResponseAction("cancel", "Cancel responses that run in the background", "POST", "/cancel"),
		newResponseAction("rm", "Delete responses", "DELETE", ""))
	return cmd
}

func newResponseLs() *cobra.Command {
	var status, model string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List responses, the newest first",
		Long: `List the stored responses of the project, the newest first. Responses to requests with
store: false are not stored.`,
		Args: cobra.NoArgs,
	}
	connect, l := clientFlags(cmd), listFlags[responseRow](cmd, "background=true", 50)
	cmd.Flags().StringVar(&status, "status", "",
		"only those that are queued, in_progress, completed, incomplete, failed or cancelled")
	cmd.Flags().StringVar(&model, "model", "", "only those of a model")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		query := url.Values{}
		for name, value := range map[string]string{"status": status, "model": model} {
			if value != "" {
				query.Set(name, value)
			}
		}
		all, err := listFor[responseRow](cmd.Context(), connect(), "/v1/responses?"+query.Encode(), l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(r responseRow) string { return string(r.ID) },
			"ID\tSTATUS\tMODEL\tTOKENS\tCREATED", func(r responseRow) string {
				tokens := "-"
				if r.Usage != nil {
					tokens = strconv.Itoa(r.Usage.TotalTokens)
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", l.id(string(r.ID)), inLine(string(r.Status)),
					l.clip(inLine(r.Model)), tokens, l.since(now, r.CreatedAt))
			})
	}
	return cmd
}

// A responseRow is a response as GET /v1/responses lists it.
type responseRow struct {
	ID                 berth.ResponseID            `json:"id"`
	Object             string                      `json:"object"`
	CreatedAt          int64                       `json:"created_at"`
	CompletedAt        *int64                      `json:"completed_at"`
	Status             berth.Status                `json:"status"`
	Background         bool                        `json:"background"`
	Model              string                      `json:"model"`
	Conversation       *berth.ResponseConversation `json:"conversation"`
	PreviousResponseID *berth.ResponseID           `json:"previous_response_id"`
	Error              *berth.ResponseError        `json:"error"`
	IncompleteDetails  *berth.IncompleteDetails    `json:"incomplete_details"`
	Usage              *berth.Usage                `json:"usage"`
	Cost               *berth.Cost                 `json:"cost"`
	Metadata           map[string]string           `json:"metadata"`
}

// newResponseAction returns a command that sends one request for each response.
func newResponseAction(use, short, method, suffix string) *cobra.Command {
	cmd := &cobra.Command{Use: use + " RESPONSE...", Short: short, Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = responses.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := responses.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), method, "/v1/responses/"+url.PathEscape(id)+suffix, nil, nil)
		})
	}
	return cmd
}
