package e2b

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Requests without proof that name an unknown sandbox wait discoverInterval, then share one read of the list of
// sandboxes.
const discoverInterval = time.Second

// A discovery finds sandboxes that other servers of the cluster have created since the last load.
type discovery struct {
	turn chan struct{} // has a value while a request reads the list
	at   time.Time     // when the last read began; guarded by turn
}

func newDiscovery() discovery { return discovery{turn: make(chan struct{}, 1)} }

// find returns a sandbox that runs or is paused. token is the access token that the client sent, if any. Without
// other servers, an unknown id does not cause a read of the store: such requests need no key. With them, it waits
// for one that serves all who wait, once a second.
func (d *Door) find(ctx context.Context, id berth.ContainerID, token string) (live, bool, error) {
	s, ok, loaded := d.known(id)
	if ok {
		return s, ok, nil
	}
	var err error
	switch {
	case !loaded:
		err = d.load(ctx)
	case d.Placement.Alone():
		return live{}, false, nil
	default:
		_, proved := d.minted(accessPurpose, string(id), token)
		err = d.discover(ctx, proved)
	}
	if err != nil {
		return live{}, false, err
	}
	s, ok, _ = d.known(id)
	return s, ok, nil
}

func (d *Door) known(id berth.ContainerID) (s live, ok, loaded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok = d.live[id]
	return s, ok, !d.loaded.IsZero()
}

// discover reads the sandboxes that this server does not know yet: at once if now is set, because the client has proved
// that it knows a sandbox.
func (d *Door) discover(ctx context.Context, now bool) error {
	arrived := d.Now()
	if !now {
		select {
		case <-time.After(discoverInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case d.discovery.turn <- struct{}{}:
		defer func() { <-d.discovery.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.discovery.at.After(arrived) {
		return nil // another request has done it meanwhile
	}
	d.discovery.at = d.Now()
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindSandbox, time.Unix(never, 0).Add(time.Second), most)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	for _, ref := range refs {
		id := berth.ContainerID(ref.ID)
		if _, ok, _ := d.known(id); ok {
			continue
		}
		o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read sandbox: %w", err)
		}
		rec, err := decode(o)
		if err != nil {
			return err
		}
		if !rec.over(d.Now()) {
			d.watch(ref.Project, id, rec)
		}
	}
	return nil
}
