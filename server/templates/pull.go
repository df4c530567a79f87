package templates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/image/registry"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/server/state"
)

// dialTime bounds a connection to a registry.
const dialTime = 30 * time.Second

// pulledName matches the name of the template of an image that a project pulled: a digest of the
// project, and one of the image. Only that project may use it.
var pulledName = regexp.MustCompile(`^e2b-[0-9a-f]{16}-[0-9a-f]{24}$`)

// A Puller pulls images for the templates that projects build.
type Puller struct {
	Templates  *Catalog
	Registries []string
	Mirror     *Mirror // nil: none
	UserAgent  string
	Room       func() error // returns an error while the disk is too full for an image
	Quota      storageQuota
	Most       int64           // bytes of an image
	Proxies    *proxy.Selector // nil: registries are reached without one

	// InUse returns the digests of the templates that containers and snapshots refer to.
	InUse func(ctx context.Context) (map[string]bool, error)
}

// A storageQuota limits what projects store.
type storageQuota interface {
	Reserve(ctx context.Context, p berth.ProjectID, bytes int64) (release func(), err error)
}

// Check implements build.Images.
func (pl *Puller) Check(ref string) error {
	if registry.Host(ref) == "" {
		return berth.Invalid("fromImage",
			"Invalid image: '%s'. Expected a reference such as 'python:3.12' or 'registry.example.com/app:v1'.",
			rule.Clip(ref))
	}
	return nil
}

// Pull implements build.Images. The registry is asked each time, so that a project gets no image that
// its credentials do not open.
func (pl *Puller) Pull(ctx context.Context, p berth.ProjectID, ref, user, password string,
	log func(string)) (digest string, release func(), err error) {
	if err := pl.Check(ref); err != nil {
		return "", nil, err
	}
	ctx = berth.WithProject(ctx, p)
	found, err := pl.find(ctx, ref, user, password, log)
	if err != nil {
		return "", nil, pullError(ctx, ref, err)
	}
	sum := sha256.Sum256([]byte(found.Digest))
	name := state.PulledPrefix(p) + hex.EncodeToString(sum[:12])
	limits, err := pl.Templates.limits(ctx, p)
	if err != nil {
		return "", nil, fmt.Errorf("read limits: %w", err)
	}
	if !limits.AllowTemplate(name) {
		return "", nil, berth.Errorf(berth.CodeForbidden, "This project may only use the server's templates.")
	}
	for range 2 { // it may be removed before it is pinned
		t, err := pl.Templates.Images.Get(name)
		if errors.Is(err, image.ErrNotFound) {
			t, err = pl.add(ctx, p, name, found, log)
		}
		if err != nil {
			return "", nil, pullError(ctx, ref, err)
		}
		release, err = pl.Templates.pin(t.Digest)
		if !errors.Is(err, image.ErrNotFound) {
			return t.Digest, release, err
		}
	}
	return "", nil, berth.Errorf(berth.CodeUnavailable, "The image '%s' was removed while it was pulled. Try again.",
		rule.Clip(ref))
}

// add stores an image as a template of a project.
func (pl *Puller) add(ctx context.Context, p berth.ProjectID, name string, found image.Image,
	log func(string)) (image.Template, error) {
	if err := pl.Room(); err != nil {
		return image.Template{}, err
	}
	log("Pulling " + found.Digest)
	growth := &imageGrowth{ctx: ctx, project: p, quota: pl.Quota, room: pl.Room, most: pl.Most}
	defer growth.release()
	return pl.Templates.Images.Add(ctx, name, found, image.AddOptions{MaxBytes: pl.Most, Grow: growth.grow,
		Private: true})
}

const (
	leastReserved = 1 << 20 // bytes of one reservation
	roomEvery     = 4 << 20 // bytes between two looks at the disk
	roomCalls     = 256     // calls between them: many small files take inodes
)

// An imageGrowth reserves storage of a project for an image while the image grows, and stops it when the
// disk is too full. Add counts the image itself when it has its name.
type imageGrowth struct {
	ctx     context.Context
	project berth.ProjectID
	quota   storageQuota
	room    func() error
	most    int64

	mu       sync.Mutex // guards all fields below
	written  int64
	reserved int64
	releases []func()
	looked   int64 // what was written at the last look at the disk
	calls    int   // since then
}

// grow implements image.AddOptions.Grow.
func (g *imageGrowth) grow(bytes int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if bytes > g.most-g.written {
		return fmt.Errorf("%w: more than %d bytes", image.ErrTooLarge, g.most)
	}
	g.written += bytes
	if g.calls++; g.calls >= roomCalls || g.written-g.looked >= roomEvery {
		g.calls, g.looked = 0, g.written
		if err := g.room(); err != nil {
			return err
		}
	}
	need := g.written - g.reserved
	if need <= 0 {
		return nil
	}
	// A sum of what the project stores takes time: reservations grow with the image, as far as there is storage.
	if err := g.reserve(max(need, leastReserved, g.reserved/16)); err == nil {
		return nil
	}
	return g.reserve(need)
}

func (g *imageGrowth) reserve(bytes int64) error {
	release, err := g.quota.Reserve(g.ctx, g.project, bytes)
	if err != nil {
		return err
	}
	g.releases, g.reserved = append(g.releases, release), g.reserved+bytes
	return nil
}

// release returns the reservation.
func (g *imageGrowth) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, release := range g.releases {
		release()
	}
	g.releases = nil
}

// pullError returns the error of an image that could not be pulled.
func pullError(ctx context.Context, ref string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if refused, ok := errors.AsType[*berth.Error](err); ok {
		return refused // by the quota or for want of disk space
	}
	return &berth.Error{Code: berth.CodeInvalid, Param: "fromImage", Err: err,
		Message: fmt.Sprintf("The image '%s' could not be pulled: %s", rule.Clip(ref), registry.Explain(err))}
}

// ways returns how a registry is reached: through the proxy of the context's project, if it has one.
func (pl *Puller) ways(host string, listed bool) []proxy.Option {
	options := []proxy.Option{proxy.WithDialer(pl.dial(host, listed)), proxy.WithoutEnvironment()}
	return append(options, proxy.WithGuard(func(ctx context.Context, address string) error {
		name, _, err := net.SplitHostPort(address)
		if err == nil && listed && (address == host || name == host) {
			return nil
		}
		if egress.PublicTarget(ctx, address) != nil {
			return registry.ErrNotPublic
		}
		return nil
	}))
}

// dial returns a function that connects to public addresses, except those of this machine, and to a
// registry that the operator listed.
func (pl *Puller) dial(host string, listed bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: dialTime}
		name, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("dial registry: %w", err)
		}
		if !listed || address != host && name != host {
			dialer.Control = func(_, address string, _ syscall.RawConn) error {
				to, err := netip.ParseAddrPort(address)
				if err != nil || !egress.Public(to.Addr()) || egress.Own(to.Addr()) {
					return registry.ErrNotPublic
				}
				return nil
			}
		}
		return dialer.DialContext(ctx, network, address)
	}
}
