package e2b

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/internal/rule"
)

// snapshotBody checks the body of POST /sandboxes/{sandbox}/snapshots.
var snapshotBody = rule.Object(rule.Fields{"name": rule.Text(1, 128)})

// A snapshotInfo is a snapshot of a sandbox: a template that was not built.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

// snapshot serves POST /sandboxes/{sandbox}/snapshots. The snapshot has the sandbox's memory, if
// the server's driver can store it.
func (h *sandboxes) snapshot(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := x.DecodeOptional(r, snapshotBody, &body); err != nil {
		return err
	}
	id := sandboxOf(r)
	rec, _, err := h.deadlines.Read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	name, tag, err := build.SplitRef("name", body.Name)
	if err != nil {
		return err
	}
	t, err := h.builds.Named(r.Context(), c.Project, name)
	if err != nil {
		return err
	}
	if t != nil && t.Sandbox == "" {
		return berth.Errorf(berth.CodeConflict, "'%s' is the name of a template that was built.", name)
	}
	err = h.deadlines.During(r.Context(), c.Project, id, berth.EventSandboxCheckpointed, func() error {
		var made *berth.Snapshot
		err := h.builds.WhenQuiet(r.Context(), func() (err error) {
			made, err = h.containers.Snapshots().Take(r.Context(), c.Project, id,
				container.SnapshotRequest{Name: body.Name, Memory: h.memory})
			return err
		})
		if err != nil {
			return err
		}
		now := h.now().UnixMilli()
		b := build.Build{ID: build.NewBuildID(), Status: build.StatusReady, CreatedAt: now, EndedAt: now,
			Snapshot: made.ID, Memory: made.Memory,
			Env: rec.Env, User: rec.User, Dir: rec.Dir}
		if t == nil {
			t = &build.Template{ID: build.NewID(), Sandbox: nameOf(id), CreatedAt: b.CreatedAt}
			if name != "" {
				t.Names = []string{name}
			}
		}
		if t, err = h.builds.Add(r.Context(), c.Project, t, b, []string{tag}); err != nil {
			h.builds.DropSnapshot(c.Project, made.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusCreated, infoOf(t, tag))
}

// infoOf describes the snapshot of a template that has a tag.
func infoOf(t *build.Template, tag string) snapshotInfo {
	name := t.ID
	if len(t.Names) > 0 {
		name = t.Names[0]
	}
	return snapshotInfo{name + ":" + tag, names(t)}
}

// listSnapshots serves GET /snapshots.
func (h *sandboxes) listSnapshots(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := r.URL.Query()
	limit, err := limitOf(q.Get("limit"))
	if err != nil {
		return err
	}
	all, err := h.builds.Templates(r.Context(), c.Project)
	if err != nil {
		return err
	}
	found := []snapshotInfo{}
	after, last := q.Get("nextToken"), ""
	for _, t := range all {
		tag, ok := selected(t, q.Get("name"))
		if !ok || t.Sandbox == "" || q.Get("sandboxID") != "" && t.Sandbox != q.Get("sandboxID") {
			continue
		}
		if after != "" {
			if t.ID == after {
				after = ""
			}
			continue
		}
		if len(found) == limit {
			x.Header().Set(nextToken, last)
			break
		}
		found, last = append(found, infoOf(t, tag)), t.ID
	}
	return x.JSON(http.StatusOK, found)
}

// selected returns the tag under which a list shows a template: that of the reference by which the client selects
// templates, or the newest one. A reference is a name or an id, with a tag or without.
func selected(t *build.Template, ref string) (tag string, ok bool) {
	name, tag, tagged := strings.Cut(ref, ":")
	if ref != "" && name != t.ID && !t.Named(name) {
		return "", false
	}
	if tagged {
		_, ok = t.Tags[tag]
		return tag, ok
	}
	return t.Newest(), true
}

// names returns the names of a template, and never null.
func names(t *build.Template) []string { return append([]string{}, t.Names...) }

// forkBody checks the body of POST /sandboxes/{sandbox}/fork.
var forkBody = rule.Object(rule.Fields{"timeout": rule.Integer(0, maxTimeout),
	"count": rule.Integer(1, container.MaxForks)})

// A fork is one of the sandboxes that a request asked for, or why it could not be created.
type fork struct {
	Sandbox *sandbox `json:"sandbox,omitempty"`
	Error   *failure `json:"error,omitempty"`
}

// fork serves POST /sandboxes/{sandbox}/fork: sandboxes with the files, and if the driver can copy
// them the running processes, of another one.
func (h *sandboxes) fork(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	body := struct {
		Timeout int64 `json:"timeout"`
		Count   int   `json:"count"`
	}{defaultTimeout, 1}
	if err := x.DecodeOptional(r, forkBody, &body); err != nil {
		return err
	}
	id := sandboxOf(r)
	from, _, err := h.deadlines.Read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	if from.Paused {
		return berth.Errorf(berth.CodeConflict, "Sandbox '%s' is paused. Resume it first.", nameOf(id))
	}
	var made []container.Forked
	err = h.builds.WhenQuiet(r.Context(), func() (err error) {
		made, err = h.containers.Forker().Forks(r.Context(), c, id,
			container.ForkRequest{SnapshotRequest: container.SnapshotRequest{Memory: h.memory}}, body.Count)
		if err == nil && len(made) == 1 {
			err = made[0].Err
		}
		return err
	})
	if err != nil && len(made) == 0 {
		made = slices.Repeat([]container.Forked{{Err: err}}, body.Count)
	}
	forks := []fork{}
	for _, f := range made {
		made, err := h.register(r.Context(), c.Project, f, from, body.Timeout)
		if err != nil {
			status, e := exchange.Describe(err, c.RequestID)
			forks = append(forks, fork{Error: &failure{status, e.Message}})
			continue
		}
		forks = append(forks, fork{Sandbox: new(h.describe(r, c.Key, made.id, made.rec))})
	}
	return x.JSON(http.StatusCreated, forks)
}

// A newSandbox is a new sandbox.
type newSandbox struct {
	id  berth.ContainerID
	rec *deadline.Record
}

// register gives a fork the deadline and settings of a sandbox.
func (h *sandboxes) register(ctx context.Context, p berth.ProjectID, f container.Forked, from *deadline.Record,
	timeout int64) (newSandbox, error) {
	if f.Err != nil {
		return newSandbox{}, f.Err
	}
	now := h.now()
	rec := *from
	rec.StartedAt, rec.Paused, rec.Deadline = now.UnixMilli(), false, now.Unix()+timeout
	if err := h.deadlines.Create(ctx, p, f.Container, &rec); err != nil {
		h.deadlines.Discard(p, f.Container.ID)
		return newSandbox{}, err
	}
	return newSandbox{f.Container.ID, &rec}, nil
}

// rfc3339 formats Unix milliseconds.
func rfc3339(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
