package mcp

import (
	"context"
	"errors"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
)

// Limits of subscriptions.
const (
	maxWatched       = 64  // containers of a project whose files are watched
	maxSubscriptions = 256 // of a subscriber to files of one container
)

// watches report the changes of files to those who subscribe to them.
type watches struct {
	door *Door

	mu        sync.Mutex
	running   map[watched]*watch
	listeners map[sdk.Session]*visit // requests of subscriptions/listen
}

// watched is a container whose files are watched.
type watched struct {
	project   berth.ProjectID
	container berth.ContainerID
}

// A watch follows the files of a container.
type watch struct {
	files map[subscriber]map[string]bool // URIs
	stop  context.CancelFunc
}

// A subscriber is a *session.Session, or the SDK's session of a request of subscriptions/listen.
type subscriber any

var errSubscriptions = errors.New("there are too many subscriptions")

// listen remembers who listens, until the caller calls done.
func (w *watches) listen(by sdk.Session, v *visit) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[by] = v
	return func() {
		w.mu.Lock()
		delete(w.listeners, by)
		w.mu.Unlock()
		w.leave(by)
	}
}

// of returns who subscribes, and for which visit.
func (w *watches) of(by sdk.Session, extra *sdk.RequestExtra) (*visit, subscriber) {
	if v := visitOf(extra); v != nil {
		return v, v.session
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listeners[by], by
}

// subscribe serves resources/subscribe, and the subscriptions of subscriptions/listen.
func (d *Door) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	v, by := d.watches.of(req.Session, req.Extra)
	if v == nil {
		return errors.New("the request has no caller")
	}
	uri := req.Params.URI
	id, _, err := fileOf(uri)
	if err != nil {
		return err
	}
	c, err := d.Containers.Get(detached{ctx}, v.caller.Project, id)
	if err != nil || c.Status != berth.ContainerRunning {
		return noResource(uri)
	}
	return d.watches.add(watched{v.caller.Project, id}, by, uri)
}

// unsubscribe serves resources/unsubscribe.
func (d *Door) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	v, by := d.watches.of(req.Session, req.Extra)
	if id, _, err := fileOf(req.Params.URI); v != nil && err == nil {
		d.watches.remove(watched{v.caller.Project, id}, by, req.Params.URI)
	}
	return nil
}

// add adds a subscription to a file.
func (w *watches) add(at watched, by subscriber, uri string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := w.running[at]
	if running == nil {
		n := 0
		for other := range w.running {
			if other.project == at.project {
				n++
			}
		}
		if n >= maxWatched {
			return errSubscriptions
		}
		ctx, cancel := context.WithCancel(context.Background())
		running = &watch{map[subscriber]map[string]bool{}, cancel}
		w.running[at] = running
		go w.follow(ctx, at, running)
	}
	if running.files[by] == nil {
		running.files[by] = map[string]bool{}
	}
	if len(running.files[by]) >= maxSubscriptions {
		return errSubscriptions
	}
	running.files[by][uri] = true
	return nil
}

// remove removes a subscription.
func (w *watches) remove(at watched, by subscriber, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if running := w.running[at]; running != nil {
		if delete(running.files[by], uri); len(running.files[by]) == 0 {
			w.drop(at, by)
		}
	}
}

// leave removes the subscriptions of a subscriber that has gone.
func (w *watches) leave(by subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.running {
		w.drop(at, by)
	}
}

// drop removes a subscriber to files of a container. The caller holds mu.
func (w *watches) drop(at watched, by subscriber) {
	running := w.running[at]
	if delete(running.files, by); len(running.files) == 0 {
		running.stop()
		delete(w.running, at)
	}
}

// follow reports changes until ctx or the container ends.
func (w *watches) follow(ctx context.Context, at watched, running *watch) {
	for ev, err := range w.door.Containers.Files().Watch(ctx, at.project, at.container) {
		if err != nil {
			break
		}
		uri := uriOf(at.container, ev.File.Path)
		w.mu.Lock()
		wanted := false
		for _, uris := range running.files {
			wanted = wanted || uris[uri]
		}
		w.mu.Unlock()
		if wanted {
			_ = w.door.server.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri}) // as told
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[at] == running {
		delete(w.running, at)
	}
}
