package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// controlTimeout bounds one question to the sentry.
const controlTimeout = 10 * time.Second

// Pause stops every process in the sandbox. It asks the sentry to; freezing the
// sentry's cgroup is quicker but breaks systrap: what runs when it is frozen dies
// when it is thawed (docs/decisions/0002-gvisor-pause.md).
func (d *Driver) Pause(ctx context.Context, id string) error { return d.control(ctx, id, "pause") }

// Resume continues a paused sandbox.
func (d *Driver) Resume(ctx context.Context, id string) error { return d.control(ctx, id, "resume") }

// control runs a command of runsc's on a running sandbox; it takes 12 ms.
func (d *Driver) control(ctx context.Context, id, command string) error {
	s, err := d.find(id)
	if err != nil {
		return err
	}
	if err := s.running(); err != nil {
		return fmt.Errorf("gvisor: %s %s: %w", command, id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	if out, err := s.wall.control(ctx, command, "s"); err != nil {
		return fmt.Errorf("gvisor: %s %s: %w: %s", command, id, errors.Join(context.Cause(ctx), err), strings.TrimSpace(out))
	}
	return nil
}

// paused reports whether runsc has paused the sandbox. Its state file says so;
// commands rewrite it under a lock, so between two of them it is whole.
func (s instance) paused() (bool, error) {
	raw, err := os.ReadFile(s.path(sealed + "/runsc/s_sandbox:s.state"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var state struct {
		Status string `json:"status"`
	}
	return json.Unmarshal(raw, &state) == nil && state.Status == "paused", nil
}

// running returns an error unless the sandbox runs, or is paused.
func (s instance) running() error {
	alive, err := s.wall.alive()
	if err == nil && !alive {
		err = errors.New("it is not running")
	}
	return err
}
