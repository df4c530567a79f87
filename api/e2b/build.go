package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
)

const (
	maxSteps      = 500
	maxLogs       = 5000            // lines of one build
	maxLogLine    = 4096            // bytes
	maxStarted    = 20              // builds of a project that run or wait on one server
	beat          = 5 * time.Second // between saves of a build that runs
	finishTimeout = time.Minute     // of saving how a build ended
)

// Images pulls the images that templates start from.
type Images interface {
	// Check returns a *berth.Error if a reference is not one of an image.
	Check(ref string) error
	// Pull returns the digest of a template of an image, which only this project may use. log
	// receives progress. Errors for clients are *berth.Error.
	Pull(ctx context.Context, p berth.ProjectID, ref, user, password string, log func(string)) (digest string,
		err error)
}

// builds are the builds that run or wait on this server.
type builds struct {
	queue *queue

	mu    sync.Mutex
	all   map[string]*running // by project and id
	count map[berth.ProjectID]int
	wg    sync.WaitGroup
}

// A running is a build in progress.
type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when all of it has ended

	mu    sync.Mutex
	build build
}

func newBuilds(limits BuildLimits) *builds {
	return &builds{queue: newQueue(limits.AtOnce), all: map[string]*running{}, count: map[berth.ProjectID]int{}}
}

// add adds a build until end is called.
func (b *builds) add(p berth.ProjectID, id string, run *running) (end func(), err error) {
	key := string(p) + "/" + id
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[key] != nil {
		return nil, startedAlready(id)
	}
	if b.count[p] >= maxStarted {
		return nil, berth.Errorf(berth.CodeRateLimited,
			"%d builds of this project run or wait already. Wait until one has ended, or delete its template.",
			maxStarted)
	}
	b.all[key] = run
	b.count[p]++
	b.wg.Add(1)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, key)
		if b.count[p]--; b.count[p] == 0 {
			delete(b.count, p)
		}
		close(run.done)
		b.wg.Done()
	}, nil
}

func startedAlready(id string) error {
	return berth.Errorf(berth.CodeConflict, "Build '%s' was started already.", id)
}

// find returns a build that runs or waits here, or nil.
func (b *builds) find(p berth.ProjectID, id string) *running {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[string(p)+"/"+id]
}

// get returns the present state of a build that runs or waits here, or nil.
func (b *builds) get(p berth.ProjectID, id string) *build {
	run := b.find(p, id)
	if run == nil {
		return nil
	}
	return run.state()
}

// end cancels a build that runs or waits here, and returns when it has ended, with its container.
func (b *builds) end(ctx context.Context, p berth.ProjectID, id string, cause error) error {
	run := b.find(p, id)
	if run == nil {
		return nil
	}
	run.cancel(cause)
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cancel build: %w", ctx.Err())
	}
}

// Causes of the end of a build.
var (
	errBuildTime    = errors.New("the build took too long")
	errBuildDeleted = errors.New("the template of the build was deleted")
	errBuildEnded   = errors.New("another server has ended the build")
	errServerStops  = errors.New("the server stops")
)

// state returns a copy of a build.
func (r *running) state() *build {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.build
	b.Logs = slices.Clip(b.Logs)
	return &b
}

// change changes a build.
func (r *running) change(f func(*build)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.build)
}

// log adds lines to the log of a build.
func (r *running) log(now time.Time, level, step, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(text) {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "�")
		if len(line) > maxLogLine {
			line = strings.ToValidUTF8(line[:maxLogLine], "") + "…"
		}
		switch n := len(r.build.Logs); {
		case n == maxLogs:
			return
		case n == maxLogs-1:
			line, level = "The log is too long; later lines are left out.", "warn"
		}
		r.build.Logs = append(r.build.Logs, logEntry{rfc3339(now.UnixMilli()), level, line, step})
	}
}

// stepRule checks a step of a build.
var stepRule = rule.Object(rule.Fields{"type": rule.Text(1, 32), "args": rule.List(rule.Text(0, 1<<20), 1000),
	"filesHash": rule.Text(0, 64),
	"force":     rule.Boolean, "forceUpload": rule.Boolean, "resolveSymlinks": rule.Boolean, "gzip": rule.Boolean},
	"type")

// startBody checks the body of POST /v2/templates/{template}/builds/{build}.
var startBody = rule.Object(rule.Fields{
	"fromImage": rule.Text(0, 1024), "fromTemplate": rule.Text(0, 256), "force": rule.Boolean,
	"fromImageRegistry": rule.Object(rule.Fields{"type": rule.Text(1, 32), "username": rule.Text(0, 4096),
		"password":       rule.Text(0, 1<<16),
		"awsAccessKeyId": rule.Text(0, 256), "awsSecretAccessKey": rule.Text(0, 256), "awsRegion": rule.Text(0, 64),
		"serviceAccountJson": rule.Text(0, 1<<16)}, "type"),
	"steps": rule.List(stepRule, maxSteps), "startCmd": rule.Text(0, 1<<16), "readyCmd": rule.Text(0, 1<<16),
})

// A buildRequest says how a template is built.
type buildRequest struct {
	FromImage    string `json:"fromImage"`
	FromTemplate string `json:"fromTemplate"`
	Registry     *struct {
		Type     string `json:"type"` // registry, aws or gcp
		Username string `json:"username"`
		Password string `json:"password"`
		Account  string `json:"serviceAccountJson"`
	} `json:"fromImageRegistry"`
	Force    bool   `json:"force"`
	Steps    []step `json:"steps"`
	StartCmd string `json:"startCmd"`
	ReadyCmd string `json:"readyCmd"`
}

// credentials returns the user and the password for the registry of a request.
func (req *buildRequest) credentials() (user, password string, err error) {
	switch reg := req.Registry; {
	case reg == nil:
		return "", "", nil
	case reg.Type == "registry":
		return reg.Username, reg.Password, nil
	case reg.Type == "gcp": // a registry of Google takes the key of an account as a password
		return "_json_key", reg.Account, nil
	default:
		return "", "", berth.Invalid("fromImageRegistry.type",
			"This server cannot use credentials of type '%s'. Use a user and a password, such as those of 'aws ecr get-login-password'.",
			rule.Clip(reg.Type))
	}
}

// startBuild serves POST /v2/templates/{template}/builds/{build}.
func (d *Door) startBuild(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body buildRequest
	if err := x.Decode(r, startBody, &body); err != nil {
		return err
	}
	b, err := d.buildOf(r, c)
	if err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	if ref := body.FromImage; ref != "" && d.Images != nil && !slices.Contains(ownImages, ref) {
		if err := d.Images.Check(ref); err != nil {
			return err
		}
	}
	if b.Status != statusWaiting {
		return startedAlready(b.ID)
	}
	ctx, cancel := context.WithCancelCause(d.life)
	run := &running{build: *b, cancel: cancel, done: make(chan struct{})}
	run.build.Status, run.build.Server, run.build.BeatAt = statusBuilding, d.Server, d.Now().UnixMilli()
	end, err := d.builds.add(c.Project, b.ID, run)
	if err != nil {
		cancel(nil)
		return err
	}
	if err := d.saveStarted(r.Context(), c.Project, run.state()); err != nil {
		cancel(nil)
		end()
		switch {
		case errors.Is(err, errBuildDeleted):
			return templateNotFound(b.Template)
		case errors.Is(err, errBuildEnded):
			return startedAlready(b.ID)
		}
		return err
	}
	go func() {
		defer end()
		defer cancel(nil)
		d.runBuild(ctx, c, run, &body)
	}()
	x.WriteHeader(http.StatusAccepted)
	return nil
}

// check checks a request.
func (req *buildRequest) check() error {
	if (req.FromImage == "") == (req.FromTemplate == "") {
		return berth.Invalid("fromImage", "Expected either 'fromImage' or 'fromTemplate'.")
	}
	if _, _, err := req.credentials(); err != nil {
		return err
	}
	for i, s := range req.Steps {
		if err := s.check(fmt.Sprintf("steps[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// runBuild builds a template until ctx ends, and saves how that ended.
func (d *Door) runBuild(ctx context.Context, c berth.Caller, run *running, req *buildRequest) {
	until, stop := context.WithCancel(ctx)
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		d.saveWhileBuilding(until, c.Project, run)
	}()
	w := &worker{door: d, caller: c, run: run, req: req}
	err := w.build(ctx)
	stop()
	<-saved
	now := d.Now()
	var why *reason
	if err != nil {
		message := w.explain(err)
		run.log(now, "error", w.step, message)
		why = &reason{Message: message, Step: w.step,
			Logs: []logEntry{{rfc3339(now.UnixMilli()), "error", message, w.step}}}
		d.Log.Info("template build failed", "template", run.build.Template, "build", run.build.ID, "project", c.Project,
			"err", err)
	} else {
		run.log(now, "info", "finalize", "Build finished")
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	if err == nil {
		err = d.finish(ctx, c.Project, run)
	}
	// Only what is saved shows the end: another server may have ended the build.
	ended := run.state()
	ended.EndedAt, ended.BeatAt = now.UnixMilli(), now.UnixMilli()
	if err != nil && why == nil {
		why = &reason{Message: "The build could not be saved.", Logs: []logEntry{}}
	}
	ended.Status, ended.Reason = statusReady, why
	if why != nil {
		ended.Status = statusError
	}
	saveErr := d.saveRunning(ctx, c.Project, ended)
	if saveErr != nil && !errors.Is(saveErr, errBuildDeleted) && !errors.Is(saveErr, errBuildEnded) {
		d.Log.Error("failed to save the end of a template build", "template", run.build.Template, "build", run.build.ID,
			"project", c.Project, "err", saveErr)
	}
}

// finish makes the tags of a build that is complete select it.
func (d *Door) finish(ctx context.Context, p berth.ProjectID, run *running) error {
	b := run.state()
	b.Status = statusReady
	err := d.saveRunning(ctx, p, b) // before its tags: a tag selects only what is ready
	var t *template
	if err == nil {
		t, err = d.updateTemplate(ctx, p, b.Template, func(t *template) error {
			t.tag(b.ID, b.Tags)
			t.UpdatedAt = d.Now().UnixMilli()
			return nil
		})
	}
	if err != nil {
		d.dropSnapshot(p, b.Snapshot)
		return err
	}
	if err := d.prune(ctx, p, t); err != nil {
		d.Log.Warn("failed to delete old builds of a template", "template", t.ID, "project", p, "err", err)
	}
	return nil
}

// saveWhileBuilding saves a build from time to time until ctx ends, so that other servers can show
// its log. If the build was deleted, or ended by another server, it cancels the build.
func (d *Door) saveWhileBuilding(ctx context.Context, p berth.ProjectID, run *running) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		run.change(func(b *build) { b.BeatAt = d.Now().UnixMilli() })
		err := d.saveRunning(ctx, p, run.state())
		switch {
		case errors.Is(err, errBuildDeleted), errors.Is(err, errBuildEnded):
			run.cancel(err)
			return
		case err != nil && ctx.Err() == nil:
			d.Log.Warn("failed to save a template build that runs; will retry", "build", run.build.ID, "project", p,
				"err", err)
		}
	}
}

// explain returns the message of an error for the client.
func (w *worker) explain(err error) string {
	switch {
	case errors.Is(err, errBuildTime):
		return fmt.Sprintf("The build took longer than %s, the limit of this server.",
			shortDuration(w.door.Builds.Time))
	case errors.Is(err, errBuildDeleted):
		return "The template was deleted while it was being built."
	case errors.Is(err, errServerStops), errors.Is(err, errBuildEnded):
		return interruptedMessage
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	if e, ok := errors.AsType[*stepError](err); ok {
		return e.Error()
	}
	w.door.Log.Error("failed to build a template", "template", w.run.build.Template, "build", w.run.build.ID, "project",
		w.caller.Project, "err", err)
	return "The build failed because of an internal error. The log of the server has more."
}

// shortDuration returns a duration without units that are zero, such as 30m.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// hash returns a key for the state of a build after a step: what it was before, and the step.
func hash(before string, s step) string {
	text, _ := json.Marshal([]any{before, strings.ToUpper(s.Type), s.Args, s.FilesHash}) // strings always marshal
	return string(cacheKey("step", string(text)).ID)
}
