package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/schedules"
)

var planned = kind{"schedule", "/v1/schedules", berth.PrefixSchedule, 0}

func newSchedule() *cobra.Command {
	cmd := &cobra.Command{Use: "schedule", Short: "Create responses by cron expression or at intervals",
		Long: `A schedule creates a response at the times of a cron expression, or at intervals.

  berth schedule create --cron '0 9 * * 1-5' --zone Europe/Berlin --model MODEL 'Summarize the news.'
  berth schedule runs SCHEDULE

See ` + berth.DocsURL + `schedules.md.`}
	cmd.AddCommand(newScheduleCreate(), newScheduleLs(), newGet(planned, "SCHEDULE", "", ""),
		newDelete(planned, "SCHEDULE", ""), newScheduleStatus("pause", "Pause", schedules.Paused),
		newScheduleStatus("resume", "Resume", schedules.Active), newScheduleRun(), newScheduleRuns())
	return cmd
}

// A scheduleBody is the body of POST /v1/schedules.
type scheduleBody struct {
	Name      string           `json:"name,omitempty"`
	Cron      string           `json:"cron,omitempty"`
	Interval  int64            `json:"interval_seconds,omitempty"`
	TimeZone  string           `json:"time_zone,omitempty"`
	Missed    string           `json:"missed,omitempty"`
	Overlap   string           `json:"overlap,omitempty"`
	Container string           `json:"container,omitempty"`
	Request   json.RawMessage  `json:"request"`
	EndsAt    int64            `json:"ends_at,omitempty"`
	Limits    map[string]any   `json:"limits,omitempty"`
	Status    schedules.Status `json:"status,omitempty"`
}

func newScheduleCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create [PROMPT]", Short: "Create a schedule and print its id",
		Args: cobra.MaximumNArgs(1),
		Long: `Create a schedule and print its id. Its request is a PROMPT for --model, with a shell if --shell
or --container is given; or the JSON of --request, which may have every field of
POST /v1/responses.`}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	var body scheduleBody
	var every, ends time.Duration
	var model, request, cost string
	var shell, paused bool
	var runs int64
	f := cmd.Flags()
	f.StringVar(&body.Name, "name", "", "name of the schedule (default: its id)")
	f.StringVar(&body.Cron, "cron", "", "cron expression: minute, hour, day of month, month and day of week; or @daily")
	durationFlag(cmd, &every, "every", "", 0, "interval in place of --cron, such as 15m")
	f.StringVar(&body.TimeZone, "zone", "", "time zone of --cron, such as Europe/Berlin (default: UTC)")
	f.StringVar(&body.Missed, "missed", "", "times at which no server ran: skip or run_once (default: skip)")
	f.StringVar(&body.Overlap, "overlap", "",
		"times at which the run before has not ended: skip, queue or cancel_previous (default: skip)")
	f.StringVar(&body.Container, "container", "", "id or name of the running container in which the tools run")
	f.StringVar(&model, "model", "", "model that answers the prompt")
	f.StringVar(&request, "request", "", "file with the JSON of a request, in place of a prompt; - reads standard input")
	f.BoolVar(&shell, "shell", false, "give the model a shell, in a new container for each run")
	f.Int64Var(&runs, "max-runs", 0, "end the schedule after this number of runs")
	f.StringVar(&cost, "max-cost", "", "end the schedule when its runs have cost this much together")
	durationFlag(cmd, &ends, "ends", "", 0, "end the schedule after this time, such as 30d")
	f.BoolVar(&paused, "paused", false, "create it paused")
	cmd.MarkFlagsMutuallyExclusive("cron", "every")
	cmd.MarkFlagsOneRequired("cron", "every")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if body.Request, err = scheduledRequest(cmd.InOrStdin(), request, model, args,
			shell || body.Container != ""); err != nil {
			return err
		}
		body.Interval, body.Limits = int64(every/time.Second), map[string]any{}
		if ends > 0 {
			body.EndsAt = time.Now().Add(ends).Unix()
		}
		if paused {
			body.Status = schedules.Paused
		}
		if runs > 0 {
			body.Limits["runs"] = runs
		}
		if cost != "" {
			amount, err := berth.ParseAmount(cost)
			if err != nil {
				return fmt.Errorf("--max-cost: %w", err)
			}
			body.Limits["cost"] = amount
		}
		var s schedules.Schedule
		if err := connect().call(cmd.Context(), http.MethodPost, planned.path, body, &s); err != nil {
			return err
		}
		return created(string(s.ID), &s)
	}
	return cmd
}

// scheduledRequest returns the request of a new schedule: that of a file, or one with a prompt.
func scheduledRequest(in io.Reader, file, model string, args []string, shell bool) (json.RawMessage, error) {
	if file == "" {
		if len(args) == 0 || model == "" {
			return nil, errors.New("expected --model and a PROMPT, or --request")
		}
		request := map[string]any{"model": model, "input": args[0]}
		if shell {
			request["tools"] = []any{map[string]any{"type": "shell",
				"environment": map[string]any{"type": "container_auto"}}}
		}
		return json.Marshal(request)
	}
	if len(args) > 0 || model != "" {
		return nil, errors.New("--request takes the place of --model and the PROMPT")
	}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, schedules.MaxRequest+1))
	if err == nil && !json.Valid(raw) {
		err = fmt.Errorf("%s: expected JSON of at most %d bytes", file, schedules.MaxRequest)
	}
	return raw, err
}

func newScheduleLs() *cobra.Command {
	return newLs(planned, "status=active", "NAME\tSTATUS\tWHEN\tZONE\tNEXT\tRUNS\tLAST",
		func(s *schedules.Schedule) string { return string(s.ID) }, func(l *listing, s *schedules.Schedule) string {
			now, next, last, when := time.Now(), "-", "-", s.Cron
			if len(s.NextRuns) > 0 {
				next = l.until(now, s.NextRuns[0])
			}
			if s.LastRun != nil {
				last = string(s.LastRun.Status)
			}
			if s.Cron == "" {
				when = "every " + (time.Duration(s.IntervalSeconds) * time.Second).String()
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s", l.cut(inLine(s.Name), 24), s.Status, inLine(when),
				s.TimeZone, next, s.Runs, last)
		})
}

// onSchedule returns a command with one schedule as its argument.
func onSchedule(use, short string, do func(cmd *cobra.Command, c *client, path string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use + " SCHEDULE", Short: short, Args: cobra.ExactArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = planned.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := planned.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return do(cmd, c, planned.path+"/"+url.PathEscape(id))
	}
	return cmd
}

// newScheduleStatus returns a command that sets the status of a schedule.
func newScheduleStatus(use, verb string, status schedules.Status) *cobra.Command {
	return onSchedule(use, verb+" a schedule", func(cmd *cobra.Command, c *client, path string) error {
		return c.call(cmd.Context(), http.MethodPost, path, map[string]any{"status": status}, nil)
	})
}

func newScheduleRun() *cobra.Command {
	return onSchedule("run", "Run a schedule now and print the id of the run", func(cmd *cobra.Command, c *client,
		path string) error {
		var run schedules.Run
		if err := c.call(cmd.Context(), http.MethodPost, path+"/run", map[string]any{}, &run); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), run.ID)
		return err
	})
}

func newScheduleRuns() *cobra.Command {
	var l *listing
	cmd := onSchedule("runs", "List the runs of a schedule, the newest first", func(cmd *cobra.Command, c *client,
		path string) error {
		return printRuns(cmd.Context(), cmd.OutOrStdout(), c, path, l)
	})
	l = listFlags[schedules.Run](cmd, "status=failed", 50)
	return cmd
}

func printRuns(ctx context.Context, w io.Writer, c *client, path string, l *listing) error {
	all, err := listFor[*schedules.Run](ctx, c, path+"/runs", l)
	if err != nil {
		return err
	}
	return printList(w, l, all, func(r *schedules.Run) string { return string(r.ID) },
		"ID\tSCHEDULED\tTRIGGER\tSTATUS\tRESPONSE\tREASON", func(r *schedules.Run) string {
			response := "-"
			if r.ResponseID != nil {
				response = l.id(string(*r.ResponseID))
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", l.id(string(r.ID)), utc(r.ScheduledAt), r.Trigger, r.Status,
				response, l.cut(inLine(r.Reason), 40))
		})
}
