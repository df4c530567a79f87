package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/server/state"
)

// A start is a locked state directory with enough free space to open its database and driver.
type start struct {
	unlock func() error
	space  *diskspace.Guard
	calm   *calm
}

// prepare locks a state directory and makes room in it. Containers can fill the volume while no
// server runs; then neither the database nor the driver can be opened. Sandboxes that prepare
// freezes stay frozen until the container service, or close, thaws them.
func prepare(dir string, config *config.Config, log *slog.Logger) (*start, error) {
	unlock, err := state.Lock(dir)
	if err != nil {
		return nil, err
	}
	p := &start{unlock: unlock, calm: &calm{state: dir, config: config, log: log}}
	if p.space, err = openSpace(dir, config, log, p.calm.run); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close thaws sandboxes that are still frozen and unlocks the state directory.
func (p *start) close() error { return errors.Join(p.calm.thaw(), p.unlock()) }

// A calm freezes the sandboxes of a state directory with a full volume and ends the largest.
type calm struct {
	state  string
	config *config.Config
	log    *slog.Logger
	all    bool // end all sandboxes

	sandboxes driver.Existing // nil if no sandbox is frozen
	ids       []string
	filled    map[berth.ContainerID]bool // containers that were ended
}

// run freezes all sandboxes and ends the largest ones until need returns 0 or less. It ends none
// if that could not free enough. It is a diskspace.Options.Calm.
func (c *calm) run(need func() int64) {
	if err := c.freeze(need); err != nil {
		c.log.Error("failed to freeze sandboxes on a full disk", "err", err)
	}
}

func (c *calm) freeze(need func() int64) error {
	ctx := context.Background()
	sandboxes, err := driver.OpenExisting(c.state, c.config, c.log)
	if err != nil || sandboxes == nil {
		return err
	}
	if c.ids, err = sandboxes.List(ctx); err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	c.sandboxes = sandboxes
	var errs []error
	sizes := map[string]int64{}
	var sum int64
	for _, id := range c.ids {
		if err := sandboxes.Freeze(ctx, id); err != nil {
			errs = append(errs, err)
		}
		stats, err := sandboxes.Stats(ctx, id)
		if err == nil && (c.all || stats.Disk >= worthEnding) {
			sizes[id] = stats.Disk
			sum += stats.Disk
		}
	}
	if !c.all && sum < need() {
		return errors.Join(errs...) // other data fills the volume
	}
	c.filled = map[berth.ContainerID]bool{}
	for _, id := range largestFirst(sizes) {
		lack := need()
		if !c.all && lack <= 0 {
			break
		}
		c.log.Error("ending a container that fills the disk", "container", id, "disk_bytes", sizes[id], "need_bytes",
			lack)
		if err := sandboxes.Kill(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		c.filled[berth.ContainerID(id)] = true
	}
	return errors.Join(errs...)
}

// worthEnding is the minimum disk usage for which a sandbox is ended.
const worthEnding = 8 << 20

func largestFirst(sizes map[string]int64) []string {
	ids := make([]string, 0, len(sizes))
	for id := range sizes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return int(min(max(sizes[b]-sizes[a], -1), 1)) })
	return ids
}

// hasFilled reports whether a container was ended because it filled the volume.
func (c *calm) hasFilled(id berth.ContainerID) bool { return c.filled[id] }

// thawed records that the container service has thawed the sandboxes.
func (c *calm) thawed() { c.sandboxes = nil }

// thaw thaws the sandboxes.
func (c *calm) thaw() error {
	if c.sandboxes == nil {
		return nil
	}
	var errs []error
	for _, id := range c.ids {
		if err := c.sandboxes.Thaw(context.Background(), id); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	c.thawed()
	return errors.Join(errs...)
}
