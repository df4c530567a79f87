package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
	connect := clientFlags(cmd)
	cmd.Flags().BoolVar(&control, "control", false, "the page can use the desktop as well")
	durationFlag(cmd, &life, "expires", "", time.Hour, "lifetime of the URL")
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		mode, port := "view", portDesktopView
		if control {
			mode, port = "control", portDesktopControl
		}
		var out struct {
			ExitCode *int `json:"exit_code"`
			Stderr   string
		}
		body := map[string]any{"command": "command -v berth-desktop-view >/dev/null || exit 127; exec berth-desktop-view " + mode,
			"timeout_ms": 60_000}
		if err := c.call(cmd.Context(), "POST", "/v1/containers/"+id+"/exec", body, &out); err != nil {
			return err
		}
		switch {
		case out.ExitCode == nil:
			return errors.New("the desktop did not start within a minute")
		case *out.ExitCode == 127:
			return errors.New(
				"the container has no desktop; create it with the template \"desktop\" (berth image build desktop)")
		case *out.ExitCode != 0:
			return fmt.Errorf("failed to serve the desktop: %s", strings.Map(printable, strings.TrimSpace(out.Stderr)))
		}
		return printLinks(cmd, c, id, []forward{{port: port}}, life)
	}
	return cmd
}
