package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/store"
)

const (
	cacheAfter    = 2 * time.Second // of work, the result is cached
	readyTimeout  = 10 * time.Minute
	readyInterval = 500 * time.Millisecond
	startWait     = 20 * time.Second // for a start command without a ready command
)

// ownImage returns the template of this server that an image names, such as berth/python, without a registry. "" is the
// default one: it is berth/base, and it replaces E2B's own images.
func ownImage(ref string) (template string, ok bool) {
	name := strings.TrimSuffix(ref, ":latest")
	if slices.Contains([]string{"e2bdev/base", "e2bdev/code-interpreter", "berth/base"}, name) {
		return "", true
	}
	name, ok = strings.CutPrefix(name, "berth/")
	return name, ok && namePattern.MatchString(name)
}

// A worker builds a template in a container: its steps are hostile code as any other command is.
type worker struct {
	service *Service
	caller  berth.Caller
	run     *running
	req     *Request
	entered *waiter

	step      string // that runs now: "base", the number of a step, or "finalize"
	container berth.ContainerID
	client    *guest.Client
	release   func()
	shell     string // bash, or sh if the image has no bash
	state     stepState
	parent    *Build   // of the template that this one starts from; nil if that is one of the server
	releases  []func() // end the use of that template, of its image, and of cached results
}

// A stepState is what a step leaves to the next ones, beside files.
type stepState struct {
	Env  []string `json:"env,omitempty"` // NAME=value
	User string   `json:"user"`
	Dir  string   `json:"dir"`
}

// log adds to the log of the build.
func (w *worker) log(level, text string) { w.run.log(w.service.Clock.Now(), level, w.step, text) }

// build waits for its turn and builds the template. It sets what the build's record has of the result. If
// ctx ends, or the build takes too long, it returns the cause.
func (w *worker) build(ctx context.Context) error {
	w.step = "base"
	defer func() {
		for _, release := range w.releases {
			release()
		}
	}()
	for _, s := range w.req.Steps {
		if s.FilesHash != "" {
			w.releases = append(w.releases, w.service.uses.hold(cacheKey("files", s.FilesHash).ID))
		}
	}
	release, err := w.service.builds.queue.acquire(ctx, w.entered, func(before int) {
		w.log("info", fmt.Sprintf("Waiting for other builds: %d of this project are before it", before))
	})
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := w.service.Clock.WithTimeoutCause(ctx, w.service.Limits.Time, errBuildTime)
	defer cancel()
	if err := w.buildNow(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// buildNow builds the template.
func (w *worker) buildNow(ctx context.Context) error {
	source, key, err := w.base(ctx)
	if err != nil {
		return err
	}
	keys := make([]string, len(w.req.Steps))
	for i, s := range w.req.Steps {
		key = hash(key, s)
		keys[i] = key
	}
	first, cached, err := w.lastCached(ctx, keys)
	if err != nil {
		return err
	}
	if cached != nil {
		source, w.state = berth.ContainerSource{SnapshotID: cached.Snapshot}, *cached.State
		for i, s := range w.req.Steps[:first] {
			w.step = strconv.Itoa(i + 1)
			w.log("info", fmt.Sprintf("CACHED [builder %d/%d] %s", i+1, len(w.req.Steps), s))
		}
	}
	w.step = "base"
	if cached == nil && w.parent != nil && w.parent.Memory {
		if source.SnapshotID, err = w.parentFiles(ctx); err != nil {
			return err
		}
	}
	if err := w.open(ctx, source); err != nil {
		return err
	}
	defer w.discard()
	if err := w.steps(ctx, first, keys); err != nil {
		return err
	}
	w.step = "finalize"
	return w.finalize(ctx)
}

// base returns what the container starts from and a text that identifies it, and sets the state
// before the first step.
func (w *worker) base(ctx context.Context) (berth.ContainerSource, string, error) {
	d, p := w.service, w.caller.Project
	w.state = stepState{User: "user", Dir: "/home/user"}
	if ref := w.req.FromTemplate; ref != "" {
		w.log("info", "FROM template "+ref)
		t, b, release, err := d.Use(ctx, p, ref)
		if err != nil {
			return berth.ContainerSource{}, "", err
		}
		if t != nil {
			w.releases = append(w.releases, release)
			_, err := d.Update(ctx, p, t.ID, func(t *Template) error {
				t.UsedAt = d.Clock.Now().UnixMilli()
				return nil
			})
			if err != nil {
				return berth.ContainerSource{}, "", err
			}
			w.state, w.parent = stepState{Env: b.Env, User: b.User, Dir: b.Dir}, b
			return berth.ContainerSource{SnapshotID: b.Snapshot}, b.ID, nil
		}
		name, err := ServerTemplate(ref)
		return berth.ContainerSource{Template: name}, "template " + name, err
	}
	w.log("info", "FROM "+w.req.FromImage)
	if name, own := ownImage(w.req.FromImage); own {
		return berth.ContainerSource{Template: name}, "template " + name, nil
	}
	if d.Images == nil {
		return berth.ContainerSource{}, "", berth.Errorf(berth.CodeInvalid,
			"This server does not pull images. Use 'fromTemplate'.")
	}
	user, password, err := w.req.credentials()
	if err != nil {
		return berth.ContainerSource{}, "", err
	}
	digest, release, err := d.Images.Pull(ctx, p, w.req.FromImage, user, password,
		func(text string) { w.log("info", text) })
	if err == nil {
		w.releases = append(w.releases, release)
	}
	return berth.ContainerSource{Template: digest}, digest, err
}

// lastCached returns the number of steps whose result is cached, and that result.
func (w *worker) lastCached(ctx context.Context, keys []string) (int, *cached, error) {
	usable := len(keys)
	for i, s := range w.req.Steps {
		if s.Force || w.req.Force {
			usable = i
			break
		}
	}
	if w.req.Force {
		usable = 0
	}
	for i := usable; i > 0; i-- {
		c, err := w.cachedResult(ctx, cacheKey("layer", keys[i-1]))
		if err != nil {
			return 0, nil, err
		}
		if c == nil || c.State == nil {
			continue
		}
		if _, err := w.service.Snapshots.Get(ctx, w.caller.Project, c.Snapshot); err == nil {
			return i, c, nil
		}
	}
	return 0, nil, nil
}

// cachedResult returns a cached result, or nil, which the build uses until it ends.
func (w *worker) cachedResult(ctx context.Context, key store.ObjectKey) (*cached, error) {
	w.releases = append(w.releases, w.service.uses.hold(key.ID))
	return w.service.cachedResult(ctx, w.caller.Project, key)
}

// parentFiles returns a snapshot of the files of the parent, whose own one has memory: no process of the parent runs
// in the container of the build.
func (w *worker) parentFiles(ctx context.Context) (berth.SnapshotID, error) {
	d, p := w.service, w.caller.Project
	key := cacheKey("files of build", w.parent.ID)
	c, err := w.cachedResult(ctx, key)
	if err != nil {
		return "", err
	}
	if c != nil {
		if _, err := d.Snapshots.Get(ctx, p, c.Snapshot); err == nil {
			return c.Snapshot, nil
		}
	}
	if err := w.create(ctx, container.CreateRequest{
		Source: berth.ContainerSource{SnapshotID: w.parent.Snapshot}}); err != nil {
		return "", err
	}
	defer w.discard()
	made, err := d.Containers.Snapshots().Take(ctx, p, w.container, container.SnapshotRequest{Name: "e2b cache"})
	if err != nil {
		return "", err
	}
	if err := d.cache(ctx, p, key, cached{Snapshot: made.ID}); err != nil {
		d.DropSnapshot(p, made.ID)
		return "", err
	}
	return made.ID, nil
}

// create creates a container, which discard deletes.
func (w *worker) create(ctx context.Context, req container.CreateRequest) error {
	d := w.service
	req.Name, req.ExpiresAfter = "e2b-build", &berth.ExpiresAfter{Anchor: "last_active_at", Minutes: 10}
	made, err := d.Containers.Create(ctx, w.caller, req)
	if e, ok := errors.AsType[*berth.Error](err); ok && strings.HasPrefix(e.Param, "network_policy") {
		w.log("warn", "The build has no network: "+e.Message)
		req.NetworkPolicy = nil
		made, err = d.Containers.Create(ctx, w.caller, req)
	}
	if err != nil {
		return err
	}
	w.container = made.ID
	w.run.change(func(b *Build) { b.Container = made.ID })
	// so that a crash leaves no container behind
	if err := d.saveRunning(ctx, w.caller.Project, w.run.state()); err != nil {
		w.discard()
		return err
	}
	return nil
}

// open creates the container of the build and connects to it.
func (w *worker) open(ctx context.Context, source berth.ContainerSource) error {
	d := w.service
	if err := w.create(ctx, container.CreateRequest{Source: source, MemoryLimit: w.run.build.MemorySize,
		NetworkPolicy: &berth.NetworkPolicy{Type: "open"}}); err != nil {
		return err
	}
	door, release, err := d.Containers.Access().Door(ctx, w.caller, w.container)
	if err != nil {
		w.discard()
		return err
	}
	w.client, w.release = door.Client(), release
	w.shell = "/bin/sh"
	if out, err := w.command(ctx, "command -v bash", "root", "/", false); err == nil && out != "" {
		w.shell = strings.TrimSpace(out)
	}
	return nil
}

// discard deletes the container of the build.
func (w *worker) discard() {
	w.letGo()
	if w.container != "" {
		ctx, cancel := w.service.Clock.WithTimeout(context.Background(), discardTimeout)
		defer cancel()
		if err := w.service.Containers.Delete(ctx, w.caller.Project, w.container); err != nil &&
			berth.ErrorCode(err) != berth.CodeNotFound {
			w.service.Log.Error("failed to delete the container of a template build; will retry", "container", w.container,
				"err", err)
			return
		}
		w.container = ""
		w.run.change(func(b *Build) { b.Container = "" })
	}
}

// letGo ends the use of the container.
func (w *worker) letGo() {
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// steps runs the steps after the first ones, and caches results of long ones.
func (w *worker) steps(ctx context.Context, first int, keys []string) error {
	began := w.service.Clock.Now()
	for i, s := range w.req.Steps[first:] {
		at := first + i
		w.step = strconv.Itoa(at + 1)
		w.log("info", fmt.Sprintf("[builder %d/%d] %s", at+1, len(keys), s))
		if err := w.execute(ctx, s); err != nil {
			return err
		}
		if w.service.Clock.Since(began) < cacheAfter && at != len(keys)-1 {
			continue
		}
		if err := w.cacheStep(ctx, keys[at]); err != nil {
			if ctx.Err() != nil {
				return err
			}
			w.service.Log.Warn("failed to cache a step of a template build", "build", w.run.build.ID, "project",
				w.caller.Project, "err", err)
		}
		began = w.service.Clock.Now()
	}
	return nil
}

// cacheStep caches the state after a step.
func (w *worker) cacheStep(ctx context.Context, key string) error {
	d, p := w.service, w.caller.Project
	made, err := d.Containers.Snapshots().Take(ctx, p, w.container, container.SnapshotRequest{Name: "e2b cache"})
	if err != nil {
		return err
	}
	state := w.state
	if err := d.cache(ctx, p, cacheKey("layer", key), cached{Snapshot: made.ID, State: &state}); err != nil {
		d.DropSnapshot(p, made.ID)
		return err
	}
	return nil
}

// startCommand returns the start command of the request, or else the inherited one.
func (w *worker) startCommand() StartCommand {
	if w.req.StartCmd == "" && w.req.ReadyCmd == "" && w.parent != nil && w.parent.Start != nil {
		return *w.parent.Start
	}
	return StartCommand{w.req.StartCmd, w.req.ReadyCmd, w.state.User, w.state.Dir}
}

// finalize runs the start command, waits until it is ready, and makes the snapshot.
func (w *worker) finalize(ctx context.Context) error {
	d := w.service
	start := w.startCommand()
	memory := start.Command != "" && d.Memory
	stop := func() {}
	if start.Command != "" {
		w.log("info", "Running start command: "+start.Command)
		var err error
		if stop, err = w.runStart(ctx, start); err != nil {
			return err
		}
	}
	defer func() { stop() }()
	if err := w.awaitReady(ctx, start); err != nil {
		return err
	}
	stop() // the command continues without a reader
	stop = func() {}
	w.letGo() // memory is only stored of a container that is not in use
	w.log("info", "Saving the template")
	var made *berth.Snapshot
	err := d.WhenQuiet(ctx, func() (err error) {
		made, err = d.Containers.Snapshots().Take(ctx, w.caller.Project, w.container,
			container.SnapshotRequest{Name: "e2b template", Memory: memory})
		return err
	})
	if err != nil {
		return err
	}
	w.run.change(func(b *Build) {
		b.Snapshot, b.Memory, b.Env, b.User, b.Dir = made.ID, made.Memory, w.state.Env, w.state.User, w.state.Dir
		if start.Command != "" {
			b.Start = &start
		}
	})
	return nil
}

// runStart starts the start command. stop detaches from it.
func (w *worker) runStart(ctx context.Context, start StartCommand) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // without a deadline, at which the guest would end it
	p, err := w.client.Start(ctx, w.process(start.Command, start.User, start.Dir))
	if err != nil {
		cancel()
		return nil, &stepError{"start command", err.Error()}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var lines, errLines lineWriter
		from := func(stream string) func(string) {
			return func(text string) {
				for line := range strings.Lines(text) {
					w.log("info", "[start] ["+stream+"]: "+line)
				}
			}
		}
		defer func() { // the rest of a line when the build no longer reads
			lines.write(nil, true, from("stdout"))
			errLines.write(nil, true, from("stderr"))
		}()
		for ev, err := range p.Events() {
			if err != nil {
				return
			}
			lines.write(ev.Stdout, ev.Ended, from("stdout"))
			errLines.write(ev.Stderr, ev.Ended, from("stderr"))
			if ev.Ended {
				w.log("info", "The start command ended: "+ev.Status)
			}
		}
	}()
	return func() { cancel(); <-done }, nil
}

// awaitReady returns when the ready command succeeds.
func (w *worker) awaitReady(ctx context.Context, start StartCommand) error {
	if start.Ready == "" {
		if start.Command == "" {
			return nil
		}
		select {
		case <-w.service.Clock.After(startWait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.log("info", "Waiting for template to be ready: "+start.Ready)
	began := w.service.Clock.Now()
	for {
		_, err := w.command(ctx, start.Ready, start.User, start.Dir, false)
		switch {
		case err == nil:
			w.log("info", "Template is ready")
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case w.service.Clock.Since(began) > readyTimeout:
			return &stepError{"ready command '" + start.Ready + "'", fmt.Sprintf("it did not succeed within %v",
				readyTimeout)}
		}
		select {
		case <-w.service.Clock.After(readyInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
