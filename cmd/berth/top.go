package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/berth-run/berth"
)

func newTop() *cobra.Command {
	var by string
	var every time.Duration
	var once, full, asJSON bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the memory, CPU, disk and network usage of containers",
		Long: `Show the resources that the project's running containers use. On a terminal, refresh
until interrupted. CPU is in percent of one processor since the last refresh.`,
		Args: cobra.NoArgs,
	}
	connect := clientFlags(cmd)
	cmd.Flags().StringVar(&by, "sort", "cpu", "sort by cpu, memory, disk, egress or age")
	durationFlag(cmd, &every, "interval", "i", 2*time.Second, "time between refreshes")
	cmd.Flags().BoolVar(&once, "no-stream", false, "print once")
	cmd.Flags().BoolVar(&full, "no-trunc", false, "print full ids")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print once, each container as a line of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		order, ok := topOrders[by]
		if !ok {
			return badUsage("--sort must be cpu, memory, disk, egress or age, not %q", by)
		}
		if every < 100*time.Millisecond {
			return badUsage("--interval must be 100ms or more")
		}
		c, ctx, out := connect(), cmd.Context(), cmd.OutOrStdout()
		once = once || asJSON
		refresh := !once && term.IsTerminal(int(os.Stdout.Fd()))
		if refresh {
			out = os.Stdout // unfiltered, for its own control sequences
		}
		var before map[berth.ContainerID]topLine
		for {
			lines, err := c.top(ctx, before)
			if err == nil {
				slices.SortFunc(lines, order)
				err = printTop(out, lines, refresh, &listing{full: full, json: asJSON})
			}
			if ctx.Err() != nil || err == nil && !refresh {
				return nil
			}
			if err != nil {
				return err
			}
			before = map[berth.ContainerID]topLine{}
			for _, l := range lines {
				before[l.container.ID] = l
			}
			select {
			case <-time.After(every):
			case <-ctx.Done():
				return nil
			}
		}
	}
	return cmd
}

// A topLine is one line of the display.
type topLine struct {
	container *berth.Container
	stats     berth.ContainerStats
	read      time.Time
	cpu       float64 // percent of one processor
}

var topOrders = map[string]func(a, b topLine) int{
	"cpu":    func(a, b topLine) int { return cmp.Compare(b.cpu, a.cpu) },
	"memory": func(a, b topLine) int { return cmp.Compare(b.stats.Memory.Bytes, a.stats.Memory.Bytes) },
	"disk":   func(a, b topLine) int { return cmp.Compare(b.stats.Disk.Bytes, a.stats.Disk.Bytes) },
	"egress": func(a, b topLine) int {
		return cmp.Compare(b.stats.Egress.BytesSent+b.stats.Egress.BytesReceived,
			a.stats.Egress.BytesSent+a.stats.Egress.BytesReceived)
	},
	"age": func(a, b topLine) int { return cmp.Compare(a.container.CreatedAt, b.container.CreatedAt) },
}

// top reads the usage of all running containers. before is the previous reading.
func (c *client) top(ctx context.Context, before map[berth.ContainerID]topLine) ([]topLine, error) {
	containers, err := c.running(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]topLine, len(containers))
	var g errgroup.Group
	g.SetLimit(8)
	for i, container := range containers {
		g.Go(func() error {
			l := topLine{container: container}
			if c.call(ctx, "GET", "/v1/containers/"+url.PathEscape(string(container.ID))+"/stats", nil,
				&l.stats) != nil {
				return nil // the container has ended
			}
			l.read = time.Now()
			used, took := l.stats.CPUSeconds, float64(max(1, l.stats.UptimeSeconds))
			if b, ok := before[container.ID]; ok {
				used, took = used-b.stats.CPUSeconds, l.read.Sub(b.read).Seconds()
			}
			l.cpu = 100 * max(0, used) / took
			lines[i] = l
			return nil
		})
	}
	_ = g.Wait()
	return slices.DeleteFunc(lines, func(l topLine) bool { return l.read.IsZero() }), nil
}

// running returns the project's running containers.
func (c *client) running(ctx context.Context) ([]*berth.Container, error) {
	all, err := list[*berth.Container](ctx, c, "/v1/containers")
	return slices.DeleteFunc(all, func(one *berth.Container) bool { return one.Status != berth.ContainerRunning }), err
}

// A topRow is a line of the display as --json prints it.
type topRow struct {
	Name       string  `json:"name"`
	CPUPercent float64 `json:"cpu_percent"` // of one processor
	*berth.ContainerStats
}

// printTop prints the display. With refresh, it replaces the previous one.
func printTop(out io.Writer, lines []topLine, refresh bool, l *listing) error {
	var text bytes.Buffer
	if l.json {
		e := json.NewEncoder(out)
		for _, line := range lines {
			if err := e.Encode(topRow{line.container.Name, line.cpu, &line.stats}); err != nil {
				return err
			}
		}
		return nil
	}
	if refresh {
		text.WriteString("\x1b[H\x1b[2J")
		_, height, err := term.GetSize(int(os.Stdout.Fd()))
		if err == nil && height > 3 {
			lines = lines[:min(len(lines), height-2)]
		}
	}
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tCPU\tMEMORY\tLIMIT\tDISK\tPIDS\tSENT\tRECEIVED\tAGE")
	for _, line := range lines {
		s := line.stats
		fmt.Fprintf(w, "%s\t%s\t%.1f%%\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", l.id(string(line.container.ID)),
			l.cut(inLine(line.container.Name), 12), line.cpu,
			size(s.Memory.Bytes), size(s.Memory.LimitBytes), size(s.Disk.Bytes), s.PIDs.Count, size(s.Egress.BytesSent),
			size(s.Egress.BytesReceived),
			duration(time.Duration(s.UptimeSeconds)*time.Second))
	}
	w.Flush()
	_, err := out.Write(text.Bytes())
	return err
}

// size formats a number of bytes with a suitable unit.
func size(n int64) string {
	const units = "BKMGT"
	v, i := float64(n), 0
	for v >= 1000 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 || v >= 100 {
		return fmt.Sprintf("%.0f%c", v, units[i])
	}
	return fmt.Sprintf("%.1f%c", v, units[i])
}
