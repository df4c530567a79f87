package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/guest"
)

// The ports on which a desktop is served to browsers; see image/desktop/berth-desktop-view.
const (
	portDesktopControl = 6080
	portDesktopView    = 6081
)

func newDesktop() *cobra.Command {
	var control bool
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "desktop CONTAINER",
		Short: "Print a URL that shows the desktop of a container",
		Long: `Print a URL that shows the desktop of a container in a browser, live. It needs no key. With
--control, the page also sends your mouse and keyboard, beside those of the model. The
container needs the template "desktop" or programs like it; the desktop starts if none runs.

  berth desktop cntr_…
  berth desktop --control --expires 10m cntr_…`,
		Args: cobra.ExactArgs(1),
	}
	client := clientFlags(cmd)
	cmd.Flags().BoolVar(&control, "control", false, "the page can use the desktop as well")
	durationFlag(cmd, &life, "expires", "", time.Hour, "lifetime of the URL")
	cmd.ValidArgsFunction = containers.complete(client, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := client()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		mode, port := "view", portDesktopView
		if control {
			mode, port = "control", portDesktopControl
		}
		if err := startDesktop(cmd.Context(), c.guest(id, ""), mode); err != nil {
			return err
		}
		return printLinks(cmd, c, id, []forward{{port: port}}, life)
	}
	return cmd
}

// startDesktop starts the program that serves the desktop in a mode, and waits until it serves. The log of the
// container shows the program, not a command of a shell around it.
func startDesktop(ctx context.Context, g *guest.Client, mode string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the desktop did not start within a minute"))
	defer cancel()
	p, err := g.Start(ctx, guest.ProcessRequest{Cmd: "berth-desktop-view", Args: []string{mode}})
	if err != nil {
		if e, ok := errors.AsType[*connect.Error](err); ok && guest.StartExitCode(e.Message()) == 127 {
			return errors.New(
				"the container has no desktop; create it with the template \"desktop\" (berth image build desktop)")
		}
		return refusal(err)
	}
	var stderr strings.Builder
	for ev, err := range p.Events() {
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return lost(refusal(err))
		case ev.Ended && ev.ExitCode != 0:
			text := strings.Map(printable, strings.TrimSpace(stderr.String()))
			return fmt.Errorf("failed to serve the desktop: %s", text)
		}
		stderr.Write(ev.Stderr)
	}
	return nil
}
