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
	maxLogs       = 5000 // lines of one build
	maxLogLine    = 4096 // bytes
	runningBuilds = 2    // on one server
	buildLife     = 2 * time.Hour
	beat          = 5 * time.Second  // between saves of a build that runs
	staleBuild    = 30 * time.Second // without a save, after which its server has ended
	finishTimeout = time.Minute      // of saving how a build ended
)

// Images pulls the images that templates start from.
type Images interface {
	// Pull returns the digest of a template of an image, which only this project may use. log
	// receives progress. Errors for clients are *berth.Error.
	Pull(ctx context.Context, p berth.ProjectID, ref, user, password string, log func(string)) (digest string, err error)
}

// builds are the builds that run on this server.
type builds struct {
	slots chan struct{}

	mu  sync.Mutex
	all map[string]*running // by project and id
	wg  sync.WaitGroup
}

// A running is a build in progress.
type running struct {
	mu    sync.Mutex
	build build
}

func newBuilds() *builds {
	return &builds{slots: make(chan struct{}, runningBuilds), all: map[string]*running{}}
}

// get returns the present state of a build that runs here, or nil.
func (b *builds) get(p berth.ProjectID, id string) *build {
	b.mu.Lock()
	run := b.all[string(p)+"/"+id]
	b.mu.Unlock()
	if run == nil {
		return nil
	}
	return run.state()
}

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
var stepRule = rule.Object(rule.Fields{"type": rule.Text(1, 32), "args": rule.List(rule.Text(0, 1<<20), 1000), "filesHash": rule.Text(0, 64),
	"force": rule.Boolean, "forceUpload": rule.Boolean, "resolveSymlinks": rule.Boolean, "gzip": rule.Boolean}, "type")

// startBody checks the body of POST /v2/templates/{template}/builds/{build}.
var startBody = rule.Object(rule.Fields{
	"fromImage": rule.Text(0, 1024), "fromTemplate": rule.Text(0, 256), "force": rule.Boolean,
	"fromImageRegistry": rule.Object(rule.Fields{"type": rule.Text(1, 32), "username": rule.Text(0, 4096), "password": rule.Text(0, 1<<16),
		"awsAccessKeyId": rule.Text(0, 256), "awsSecretAccessKey": rule.Text(0, 256), "awsRegion": rule.Text(0, 64), "serviceAccountJson": rule.Text(0, 1<<16)}, "type"),
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
		return "", "", berth.Invalid("fromImageRegistry.type", "This server cannot use credentials of type '%s'. Use a user and a password, such as those of 'aws ecr get-login-password'.", rule.Clip(reg.Type))
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
	if b.Status != statusWaiting {
		return berth.Errorf(berth.CodeConflict, "Build '%s' was started already.", b.ID)
	}
	run := &running{build: *b}
	run.build.Status, run.build.BeatAt = statusBuilding, d.Now().UnixMilli()
	key := string(c.Project) + "/" + b.ID
	d.builds.mu.Lock()
	_, started := d.builds.all[key]
	if !started {
		d.builds.all[key] = run
		d.builds.wg.Add(1)
	}
	d.builds.mu.Unlock()
	if started {
		return berth.Errorf(berth.CodeConflict, "Build '%s' was started already.", b.ID)
	}
	end := func() {
		d.builds.mu.Lock()
		delete(d.builds.all, key)
		d.builds.mu.Unlock()
		d.builds.wg.Done()
	}
	if err := d.saveBuild(r.Context(), c.Project, run.state()); err != nil {
		end()
		return err
	}
	go func() {
		defer end()
		d.runBuild(c, run, &body)
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

// runBuild builds a template and saves how that ended.
func (d *Door) runBuild(c berth.Caller, run *running, req *buildRequest) {
	ctx, cancel := context.WithTimeout(d.life, buildLife)
	defer cancel()
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		d.saveWhileBuilding(ctx, c.Project, run)
	}()
	w := &worker{door: d, caller: c, run: run, req: req}
	err := w.build(ctx)
	stopped := d.life.Err() != nil
	cancel()
	<-saved
	now := d.Now()
	if err != nil {
		message := w.explain(err, stopped)
		run.log(now, "error", w.step, message)
		run.change(func(b *build) {
			b.Status, b.Reason = statusError, &reason{Message: message, Step: w.step, Logs: []logEntry{{rfc3339(now.UnixMilli()), "error", message, w.step}}}
		})
		d.Log.Info("template build failed", "template", run.build.Template, "build", run.build.ID, "project", c.Project, "err", err)
	} else {
		run.log(now, "info", "finalize", "Build finished")
	}
	ctx, cancel = context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	if err == nil {
		err = d.finish(ctx, c.Project, run)
	}
	run.change(func(b *build) {
		b.EndedAt, b.BeatAt = now.UnixMilli(), now.UnixMilli()
		if err == nil {
			b.Status = statusReady
		} else if b.Reason == nil {
			b.Status, b.Reason = statusError, &reason{Message: "The build could not be saved.", Logs: []logEntry{}}
		}
	})
	if saveErr := d.saveBuild(ctx, c.Project, run.state()); saveErr != nil {
		d.Log.Error("failed to save the end of a template build", "template", run.build.Template, "build", run.build.ID, "project", c.Project, "err", saveErr)
	}
}

// finish makes the tags of a build that is complete select it.
func (d *Door) finish(ctx context.Context, p berth.ProjectID, run *running) error {
	b := run.state()
	b.Status = statusReady
	if err := d.saveBuild(ctx, p, b); err != nil { // before its tags: a tag selects only what is ready
		return err
	}
	t, err := d.updateTemplate(ctx, p, b.Template, func(t *template) error { t.tag(b.ID, b.Tags); t.UpdatedAt = d.Now().UnixMilli(); return nil })
	if err != nil {
		d.dropSnapshot(p, b.Snapshot)
		return err
	}
	if err := d.prune(ctx, p, t); err != nil {
		d.Log.Warn("failed to delete old builds of a template", "template", t.ID, "project", p, "err", err)
	}
	return nil
}

// saveWhileBuilding saves a build from time to time until ctx ends, so that another server knows
// that it runs.
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
		if err := d.saveBuild(ctx, p, run.state()); err != nil && ctx.Err() == nil {
			d.Log.Warn("failed to save a template build that runs; will retry", "build", run.build.ID, "project", p, "err", err)
		}
	}
}

// explain returns the message of an error for the client.
func (w *worker) explain(err error, stopped bool) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	if e, ok := errors.AsType[*stepError](err); ok {
		return e.Error()
	}
	switch {
	case stopped:
		return "The server stopped while the template was being built. Build it again."
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("The build took longer than %v.", buildLife)
	}
	w.door.Log.Error("failed to build a template", "template", w.run.build.Template, "build", w.run.build.ID, "project", w.caller.Project, "err", err)
	return "The build failed because of an internal error. The log of the server has more."
}

// hash returns a key for the state of a build after a step: what it was before, and the step.
func hash(before string, s step) string {
	text, _ := json.Marshal([]any{before, strings.ToUpper(s.Type), s.Args, s.FilesHash}) // strings always marshal
	return string(cacheKey("step", string(text)).ID)
}
