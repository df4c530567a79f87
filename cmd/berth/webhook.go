package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// A webhookFunc is a command on the webhook endpoints of a project.
type webhookFunc func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID, args []string) error

// onWebhooks returns a command's RunE that opens the endpoints of --project for f.
type onWebhooks func(f webhookFunc) func(*cobra.Command, []string) error

func newWebhook() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Create, list and delete webhook endpoints, and show their log",
		Long: `A webhook endpoint receives a request when a background response or a batch of its project ends.
Requests are signed as specified by Standard Webhooks, which OpenAI's clients verify, and
retried for three days.

Endpoints created here may be anywhere, including this machine and its network. Projects
create others with POST /v1/webhook_endpoints; these must use https and public addresses.`,
	}
	var name string
	cmd.PersistentFlags().StringVar(&name, "project", string(berth.DefaultProject), "project whose endpoints are meant")
	open := stateFlag(cmd)
	on := func(f webhookFunc) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			p, err := project.ParseID("--project", name)
			if err != nil {
				return err
			}
			with := open.with
			if cmd.Name() == "create" {
				with = open.withNew
			}
			return with(cmd.Context(), func(state *server.State) error {
				return asPlain(f(cmd.Context(), cmd, webhook.New(state.Store, slog.New(slog.DiscardHandler)), p, args))
			})
		}
	}
	rm := &cobra.Command{Use: "rm WEBHOOK...", Aliases: []string{"delete"}, Short: "Delete endpoints with their logs and pending deliveries", Args: cobra.MinimumNArgs(1),
		RunE: on(func(ctx context.Context, _ *cobra.Command, s *webhook.Service, p berth.ProjectID, ids []string) error {
			for _, id := range ids {
				if err := s.Delete(ctx, p, berth.WebhookID(id)); err != nil {
					return err
				}
			}
			return nil
		})}
	cmd.AddCommand(newWebhookCreate(on), newWebhookLs(on), rm, newWebhookLog(on))
	return cmd
}

func newWebhookCreate(on onWebhooks) *cobra.Command {
	cmd := &cobra.Command{Use: "create URL", Short: "Create an endpoint and print its id and its secret, once", Args: cobra.ExactArgs(1)}
	title := cmd.Flags().String("name", "", "name of the endpoint")
	events := cmd.Flags().StringSlice("event", nil, "type of event to send, such as response.completed; may be repeated; default all")
	cmd.RunE = on(func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID, args []string) error {
		req := webhook.EndpointRequest{Name: title, URL: &args[0], EventTypes: webhook.EventTypes, Anywhere: true}
		if len(*events) > 0 {
			req.EventTypes = nil
			for _, e := range *events {
				req.EventTypes = append(req.EventTypes, berth.EventType(e))
			}
		}
		e, err := s.Create(ctx, p, req)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", e.ID, e.SigningSecret)
		return nil
	})
	return cmd
}

func newWebhookLog(on onWebhooks) *cobra.Command {
	cmd := &cobra.Command{Use: "log WEBHOOK", Short: "Show recent and pending deliveries", Args: cobra.ExactArgs(1)}
	limit := cmd.Flags().Int("limit", 50, "deliveries to show")
	cmd.RunE = on(func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID, args []string) error {
		list, _, err := s.Log(ctx, p, berth.WebhookID(args[0]), store.Page{Limit: max(1, min(*limit, 10_000))})
		if err != nil {
			return err
		}
		return writeDeliveries(cmd, list)
	})
	return cmd
}

// asPlain returns the message of an error for clients without its code.
func asPlain(err error) error {
	if e, ok := err.(*berth.Error); ok && e.Err == nil {
		return fmt.Errorf("%s", e.Message)
	}
	return err
}

func newWebhookLs(on onWebhooks) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List endpoints", Args: cobra.NoArgs}
	l := listFlags(cmd)
	cmd.RunE = on(func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID, _ []string) error {
		endpoints, _, err := s.List(ctx, p, store.Page{Limit: 1000, Ascending: true})
		if err != nil {
			return err
		}
		return printList(cmd.OutOrStdout(), l, endpoints, func(e *berth.WebhookEndpoint) string { return string(e.ID) },
			"ID\tNAME\tURL\tEVENTS\tSECRET\tCREATED", func(e *berth.WebhookEndpoint) string {
				var types []string
				for _, t := range e.EventTypes {
					types = append(types, string(t))
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", e.ID, inLine(e.Name), inLine(e.URL), strings.Join(types, ","), e.SigningSecretHint, utc(e.CreatedAt))
			})
	})
	return cmd
}

func writeDeliveries(cmd *cobra.Command, list []*webhook.Delivery) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CREATED\tDELIVERY\tTYPE\tRESPONSE\tSTATUS\tATTEMPTS\tLAST")
	for _, d := range list {
		var event berth.WebhookEvent
		if err := json.Unmarshal(d.Payload, &event); err != nil {
			return err
		}
		last := "-"
		if n := len(d.Attempts); n > 0 {
			a := d.Attempts[n-1]
			last = fmt.Sprintf("%s %d %s", utc(a.At), a.Status, a.Error)
		}
		status := string(d.Status)
		if d.Status == webhook.Pending {
			status += " until " + utc(d.DueAt)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", utc(d.CreatedAt), d.ID, d.Type, event.Data.ID, status, len(d.Attempts), strings.TrimSpace(last))
	}
	return w.Flush()
}
