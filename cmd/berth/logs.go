package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
)

func newLogs() *cobra.Command {
	var follow, raw bool
	var last int
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs CONTAINER",
		Short: "Show the commands that ran in a container",
		Long: `Show the commands that ran in a container, in the order in which they ended: what
started them, how they ended, and the start and end of their output.`,
		Args: cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the container ends")
	cmd.Flags().IntVarP(&last, "last", "n", 100, "number of past commands to show")
	durationFlag(cmd, &since, "since", "", 0, "show only commands that started at most this long ago, such as 20m or 1d")
	cmd.Flags().BoolVar(&raw, "json", false, "print each command as a line of JSON")
	where := filterFlag[berth.ContainerLog](cmd, "source=shell")
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		var from int64
		if since > 0 {
			from = time.Now().Add(-since).Unix()
		}
		show := func(l *berth.ContainerLog) error {
			if l.CreatedAt < from {
				return nil
			}
			if shown, err := where.keep(l); !shown {
				return err
			}
			if raw {
				return json.NewEncoder(out).Encode(l)
			}
			return printLog(out, l)
		}
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		path := containerPath(id, "logs")
		after := int64(-1)
		logs, err := c.lastLogs(cmd, path, last, where)
		for _, l := range logs {
			if err == nil {
				after, err = l.SequenceNumber, show(l)
			}
		}
		if err != nil || !follow {
			return err
		}
		return c.followLogs(cmd, path, after, show)
	}
	return cmd
}

// lastLogs returns the last n entries that satisfy the conditions, the oldest first.
func (c *client) lastLogs(cmd *cobra.Command, path string, n int, where *conditions) ([]*berth.ContainerLog, error) {
	var logs []*berth.ContainerLog
	for after := ""; len(logs) < n; {
		var page struct {
			Data    []*berth.ContainerLog `json:"data"`
			HasMore bool                  `json:"has_more"`
		}
		query := url.Values{"limit": {strconv.Itoa(min(n, 100))}}
		if len(where.all) > 0 {
			query.Set("limit", "100") // few of them may match
		}
		if after != "" {
			query.Set("after", after)
		}
		if err := c.call(cmd.Context(), "GET", path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, l := range page.Data {
			kept, err := where.keep(l)
			if err != nil {
				return nil, err
			}
			if kept {
				logs = append(logs, l)
			}
		}
		if !page.HasMore || len(page.Data) == 0 {
			break
		}
		after = string(page.Data[len(page.Data)-1].ID)
	}
	logs = logs[:min(n, len(logs))]
	slices.Reverse(logs)
	return logs, nil
}

// followLogs shows the entries after a sequence number until the container has ended. It resumes a
// lost stream.
func (c *client) followLogs(cmd *cobra.Command, path string, after int64, show func(*berth.ContainerLog) error) error {
	const tries = 10
	lost := 0
	for {
		err := c.followOnce(cmd.Context(), fmt.Sprintf("%s?follow=true&starting_after=%d", path, after),
			func(l *berth.ContainerLog) error {
				after, lost = l.SequenceNumber, 0
				return show(l)
			})
		if lost++; cmd.Context().Err() != nil {
			return nil
		}
		if e := (streamLost{}); !errors.As(err, &e) || lost == tries {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-cmd.Context().Done():
		}
	}
}

// A streamLost is a temporary error of a stream.
type streamLost struct{ error }

func (c *client) followOnce(ctx context.Context, path string, show func(*berth.ContainerLog) error) error {
	resp, err := c.do(ctx, "GET", path, "", nil)
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return streamLost{err}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for r := sse.NewReader(resp.Body, 0); ; {
		ev, err := r.Next()
		if err != nil {
			return streamLost{err}
		}
		if ev.Type == string(berth.EventContainerLogDone) {
			return nil
		}
		var message struct{ Log *berth.ContainerLog }
		if err := json.Unmarshal(ev.Data, &message); err != nil || message.Log == nil {
			return fmt.Errorf("the server sent %s: %.200s", ev.Type, ev.Data)
		}
		if err := show(message.Log); err != nil {
			return err
		}
	}
}

// printLog writes an entry as text: a heading, the command and its output.
func printLog(w io.Writer, l *berth.ContainerLog) error {
	how := l.Outcome.Type
	if l.Outcome.ExitCode != nil {
		how += " " + strconv.Itoa(*l.Outcome.ExitCode)
	}
	who := string(l.ResponseID)
	if who == "" {
		who = string(l.KeyID)
	}
	took := time.Duration(l.DurationMS) * time.Millisecond
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s  %s  %s\n", time.Unix(l.CreatedAt, 0).Format(time.DateTime), l.Source, who, how, took)
	fmt.Fprintf(&b, "$ %s\n", l.Command)
	for _, text := range []berth.LogText{l.Stdout, l.Stderr} {
		if b.WriteString(text.Text); text.Text != "" && !strings.HasSuffix(text.Text, "\n") {
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}
