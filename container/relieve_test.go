package container

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

// Of the containers that fill the volume, those that grow are ended, the fastest first. If none
// grows, the largest ones are, unless their end would not free enough.
func TestWriters(t *testing.T) {
	const mb = 1 << 20
	a, b, c := &instance{id: "a"}, &instance{id: "b"}, &instance{id: "c"}
	for name, tt := range map[string]struct {
		all  []diskUse
		need int64
		want []*instance
	}{
		"Growth": {[]diskUse{{a, 900 * mb, 0}, {c, 300 * mb, 20 * mb}, {b, 100 * mb, 90 * mb}}, 10 * mb,
			[]*instance{b, c}},
		"Size":      {[]diskUse{{b, 100 * mb, 2 * mb}, {a, 900 * mb, mb}}, 10 * mb, []*instance{a, b}},
		"Together":  {[]diskUse{{b, 20 * mb, 0}, {a, 30 * mb, 0}, {c, mb, 0}}, 50 * mb, []*instance{a, b}},
		"Shrinking": {[]diskUse{{a, 900 * mb, -100 * mb}, {b, 7 * mb, 0}}, 10 * mb, []*instance{a}},
		"Another":   {[]diskUse{{a, 5 * mb, mb}, {b, 6 * mb, 0}}, 10 * mb, nil}, // another program fills the volume
		"None":      {nil, 10 * mb, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []*instance
			for _, w := range writersOf(tt.all, tt.need) {
				got = append(got, w.s)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A fullDriver is a memDriver on a volume without a free block: pausing and destroying fail
// until enough sandboxes are killed.
type fullDriver struct {
	*memDriver
	mu    sync.Mutex
	disks map[string]int64
	done  []string // freeze, thaw and kill, each with its sandbox
	names map[string]string
	need  int64
}

func (d *fullDriver) lack() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.need
}

func (d *fullDriver) note(what, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = append(d.done, what+" "+d.names[id])
	if what == "kill" {
		d.need -= d.disks[id]
		d.disks[id] = 0
	}
	return nil
}

func (d *fullDriver) Freeze(_ context.Context, id string) error { return d.note("freeze", id) }
func (d *fullDriver) Thaw(_ context.Context, id string) error   { return d.note("thaw", id) }
func (d *fullDriver) Kill(_ context.Context, id string) error {
	d.die(id, sandbox.ReasonKilled)
	return d.note("kill", id)
}

func (d *fullDriver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	stats, err := d.memDriver.Stats(ctx, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	stats.Disk = d.disks[id]
	return stats, err
}

func (d *fullDriver) Pause(context.Context, string) error { return errors.New("no space") }

func (d *fullDriver) Destroy(ctx context.Context, id string) error {
	if d.lack() > 0 {
		return errors.New("no space")
	}
	return d.memDriver.Destroy(ctx, id)
}

// All are frozen before the fastest writers are ended, as many as necessary, and their ends are
// saved when there is space. The others are thawed.
func TestRelieve(t *testing.T) {
	const mb = 1 << 20
	d := &fullDriver{disks: map[string]int64{}, names: map[string]string{}}
	h := newHarness(t, func(o *Options) {
		d.memDriver = o.Driver.(*memDriver)
		o.Driver = d
	})
	ids := map[string]berth.ContainerID{}
	for name, disk := range map[string]int64{"first": 50 * mb, "second": 40 * mb, "third": 30 * mb, "idle": mb} {
		c := h.create(CreateRequest{Name: name})
		h.sh(c.ID, "true")
		ids[name] = c.ID
		d.mu.Lock()
		d.names[string(c.ID)], d.disks[string(c.ID)] = name, disk
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.need, d.done = 60*mb, nil
	d.mu.Unlock()
	if !h.k.Relieve(t.Context(), d.lack) {
		t.Error("Relieve reports freed space on a volume with space")
	}
	d.mu.Lock()
	done := slices.Clone(d.done)
	d.mu.Unlock()
	if i := slices.Index(done, "kill first"); i != 4 || len(done) != 8 || done[5] != "kill second" {
		t.Errorf("got %q, want all four frozen, the first and the second killed and the others thawed", done)
	}
	for name, id := range ids {
		c, err := h.k.Get(t.Context(), mine, id)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"first": reasonDisk, "second": reasonDisk}[name]
		if c.Berth.Reason != want {
			t.Errorf("%s: got reason %q, want %q", name, c.Berth.Reason, want)
		}
	}
	if h.k.Relieve(t.Context(), d.lack); len(d.done) != 8 {
		t.Errorf("with enough space: got %q", d.done[8:])
	}
}
