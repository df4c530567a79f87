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

// controlTimeout bounds one request to the sentry.
const controlTimeout = 10 * time.Second

// Pause stops every process in the sandbox through the sentry. Freezing the sentry's cgroup is
// faster but breaks systrap: processes that run when it is frozen die when it is thawed
// (docs/decisions/0002-gvisor-pause.md).
//
// Then Pause stops the sentry too: it updates its clocks once a second and collects garbage, also
// while nothing in it runs.
func (d *Driver) Pause(ctx context.Context, id string) error {
	if err := d.control(ctx, id, "pause"); err != nil {
		return err
	}
	return d.base.Freeze(ctx, id)
}

// Resume continues a paused sandbox.
func (d *Driver) Resume(ctx context.Context, id string) error {
	if err := d.base.Thaw(id); err != nil {
		return err
	}
	return d.control(ctx, id, "resume")
}

// control runs a runsc command on a running sandbox; it takes 12 ms.
func (d *Driver) control(ctx context.Context, id, command string) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	if err := s.running(); err != nil {
		return fmt.Errorf("gvisor: %s %s: %w", command, id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	if out, err := s.wall.control(ctx, command, "s"); err != nil {
		return fmt.Errorf("gvisor: %s %s: %w: %s", command, id, errors.Join(context.Cause(ctx), err),
			strings.TrimSpace(out))
	}
	return nil
}

// Paused reports whether runsc has paused the sandbox, according to its state file. runsc
// rewrites the file under a lock, so it is complete between two commands.
func (s instance) Paused() (bool, error) {
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
	alive, err := s.Alive()
	if err == nil && !alive {
		err = errors.New("sandbox is not running")
	}
	return err
}
