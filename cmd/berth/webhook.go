package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// A webhookFunc is a command on the webhook endpoints of a project.
type webhookFunc func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID,
	args []string) error

// onWebhooks returns a command's RunE that opens the endpoints of --project for f.
type onWebhooks func(f webhookFunc) func(*cobra.Command, []string) error

func newWebhook() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Create, list and delete webhook endpoints, and show their log",
		Long: `A webhook endpoint receives a request when a background response or a batch of its project ends.
The commands are about one project: --project names it, the default is proj_default.
Requests are signed as specified by Standard Webhooks, which OpenAI's clients verify, and
retried for three days.

Endpoints created here may be anywhere, including this machine and its network. Projects
create others with POST /v1/webhook_endpoints; these must use https and public addresses.

An endpoint for events such as sandbox.lifecycle.killed receives those of sandboxes of E2B's
API, signed as that API has it.`,
	}
	var name string
	cmd.PersistentFlags().StringVar(&name, "project", string(berth.DefaultProject), "project whose endpoints are meant")
	open := stateFlag(cmd)
	on := func(f webhookFunc) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			return open.with(cmd.Context(), func(state *state.Dir) error {
				p, err := findProject(cmd.Context(), state, name)
				if err != nil {
					return err
				}
				hooks := webhook.New(state.Store, nil, slog.New(slog.DiscardHandler))
				return asPlain(f(cmd.Context(), cmd, hooks, p, args))
			})
		}
	}
	rm := &cobra.Command{Use: "rm WEBHOOK...", Aliases: []string{"delete"},
		Short: "Delete endpoints with their logs and pending deliveries", Args: cobra.MinimumNArgs(1),
		RunE: on(func(ctx context.Context, _ *cobra.Command, s *webhook.Service, p berth.ProjectID,
			ids []string) error {
			for _, ref := range ids {
				id, err := findEndpoint(ctx, s, p, ref)
				if err != nil {
					return err
				}
				if err := s.Delete(ctx, p, id); err != nil {
					return err
				}
			}
			return nil
		})}
	cmd.AddCommand(newWebhookCreate(on), newWebhookLs(on), rm, newWebhookLog(on))
	return cmd
}

func newWebhookCreate(on onWebhooks) *cobra.Command {
	cmd := &cobra.Command{Use: "create URL", Short: "Create an endpoint and print its id and its secret, once",
		Args: cobra.ExactArgs(1)}
	created := createdFlag(cmd)
	title := cmd.Flags().String("name", "", "name of the endpoint")
	events := cmd.Flags().StringSlice("event", nil,
		"type of event to send, such as response.completed; may be repeated; default all")
	cmd.RunE = on(func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID,
		args []string) error {
		req := webhook.EndpointRequest{Name: title, URL: &args[0], EventTypes: webhook.EventTypes, Anywhere: true}
		if len(*events) > 0 {
			req.EventTypes = nil
			for _, e := range *events {
				req.EventTypes = append(req.EventTypes, berth.EventType(e))
				req.Sandboxes = req.Sandboxes || slices.Contains(webhook.SandboxEventTypes, berth.EventType(e))
			}
		}
		e, err := s.Create(ctx, p, req)
		if err != nil {
			return err
		}
		if err := created(string(e.ID)+" "+e.SigningSecret, e); err != nil {
			return err
		}
		if u, err := url.Parse(e.URL); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
			fmt.Fprintf(cmd.ErrOrStderr(),
				"warning: events are sent to %s unencrypted; use https unless you trust the network\n", u.Host)
		}
		return nil
	})
	return cmd
}

func newWebhookLog(on onWebhooks) *cobra.Command {
	cmd := &cobra.Command{Use: "log WEBHOOK", Short: "Show recent and pending deliveries", Args: cobra.ExactArgs(1)}
	l := listFlags[webhook.Delivery](cmd, "status=pending", 50)
	cmd.RunE = on(func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID,
		args []string) error {
		id, err := findEndpoint(ctx, s, p, args[0])
		if err != nil {
			return err
		}
		list, _, err := s.Log(ctx, p, id, store.Page{Limit: 10_000})
		if err != nil {
			return err
		}
		return printDeliveries(cmd.OutOrStdout(), l, list)
	})
	return cmd
}

// findEndpoint returns the endpoint that ref selects: an id, the start or the end of one, or a name.
func findEndpoint(ctx context.Context, s *webhook.Service, p berth.ProjectID, ref string) (berth.WebhookID, error) {
	all, _, err := s.List(ctx, p, store.Page{Limit: 1000})
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range all {
		if string(e.ID) == ref {
			return e.ID, nil
		}
		if e.Name == ref && ref != "" || matches(strings.TrimPrefix(string(e.ID), berth.PrefixWebhook),
			strings.TrimPrefix(ref, berth.PrefixWebhook)) {
			found = append(found, string(e.ID))
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("webhook %q %w in the project %s; --project selects another one", ref, errNotFound, p)
	case 1:
		return berth.WebhookID(found[0]), nil
	}
	return "", ambiguous("webhook", ref, found)
}

// asPlain returns the message of an error for clients without its code.
func asPlain(err error) error {
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Err == nil {
		return fmt.Errorf("%s", e.Message)
	}
	return err
}

func newWebhookLs(on onWebhooks) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List endpoints", Args: cobra.NoArgs}
	l := listFlags[berth.WebhookEndpoint](cmd, "name=ci", 0)
	cmd.RunE = on(func(ctx context.Context, cmd *cobra.Command, s *webhook.Service, p berth.ProjectID,
		_ []string) error {
		endpoints, _, err := s.List(ctx, p, store.Page{Limit: 1000, Ascending: true})
		if err != nil {
			return err
		}
		if len(endpoints) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "the project %s has no webhook endpoints; --project selects another one\n", p)
		}
		now := time.Now()
		head := "ID\tNAME\tURL\tEVENTS\tCREATED"
		if l.full {
			head += "\tSECRET"
		}
		return printList(cmd.OutOrStdout(), l, endpoints, func(e *berth.WebhookEndpoint) string { return string(e.ID) },
			head, func(e *berth.WebhookEndpoint) string {
				var types []string
				for _, t := range e.EventTypes {
					types = append(types, string(t))
				}
				row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", l.id(string(e.ID)), l.cut(inLine(e.Name), 10),
					l.cut(inLine(e.URL), 22), l.cut(strings.Join(types, ","), 18), l.since(now, e.CreatedAt))
				if l.full {
					row += "\t" + e.SigningSecretHint
				}
				return row
			})
	})
	return cmd
}

func printDeliveries(w io.Writer, l *listing, all []*webhook.Delivery) error {
	now := time.Now()
	head := "CREATED\tRESPONSE\tTYPE\tSTATUS\tTRIES\tLAST"
	if l.full {
		head += "\tDELIVERY"
	}
	return printList(w, l, all, func(d *webhook.Delivery) string {
		return d.ID
	}, head, func(d *webhook.Delivery) string {
		var event struct {
			berth.WebhookEvent
			Sandbox string `json:"sandbox_id"` // of a berth.SandboxEvent
		}
		subject := "-"
		if json.Unmarshal(d.Payload, &event) == nil {
			subject = cmp.Or(event.Data.ID, event.Sandbox)
		}
		last, status := "-", string(d.Status)
		if n := len(d.Attempts); n > 0 {
			last = lastAttempt(l, d.Attempts[n-1])
		}
		if l.full && d.Status == webhook.Pending {
			status += " until " + utc(d.DueAt)
		}
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", l.since(now, d.CreatedAt), l.id(subject), d.Type, status,
			len(d.Attempts), last)
		if l.full {
			row += "\t" + d.ID
		}
		return row
	})
}

// lastAttempt returns the result of an attempt as the table shows it: its status or, of its error, what
// comes last, which is the cause.
func lastAttempt(l *listing, a webhook.Attempt) string {
	text := inLine(a.Error)
	if l.full {
		return strings.TrimSpace(fmt.Sprintf("%s %d %s", utc(a.At), a.Status, text))
	}
	if a.Status != 0 {
		return strconv.Itoa(a.Status)
	}
	return l.cut(text[strings.LastIndex(text, ": ")+1:], 19)
}
