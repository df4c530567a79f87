package e2b

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/rule"
)

// Timeouts in seconds, where a request has none.
const (
	defaultTimeout    = 300
	defaultTimeoutOld = 15 // of POST /sandboxes
	maxTimeout        = 24 * 60 * 60
)

// texts checks an object of texts.
func texts(at string, v any) error {
	object, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	const most = 1000
	if len(object) > most {
		return berth.Invalid(at, "Invalid '%s': expected at most %d names, but got %d.", at, most, len(object))
	}
	for name, value := range object {
		if _, ok := value.(string); !ok {
			return rule.WrongType(rule.Join(at, name), "a string", value)
		}
	}
	return nil
}

// createBody checks the body of POST /v2/sandboxes. Fields that this server does not serve are
// refused: without them a sandbox could reach what it should not.
var createBody = rule.Object(rule.Fields{
	"templateID":            rule.Text(1, 256),
	"timeout":               rule.Integer(0, maxTimeout),
	"metadata":              texts,
	"envVars":               texts,
	"secure":                rule.Boolean,
	"allow_internet_access": rule.Boolean,
	"autoPause":             rule.Boolean,
	"autoPauseMemory":       rule.Boolean,
	"autoResume":            rule.Object(rule.Fields{"enabled": rule.Boolean}),
	"network": rule.Object(rule.Fields{
		"allowOut": rule.List(rule.Text(1, 256), 100), "denyOut": rule.List(rule.Text(1, 64), 100),
		"allowPublicTraffic": rule.Boolean, "rules": rulesBody, "egressProxy": egressProxy,
		"maskRequestHost": requestHost, "httpsPorts": rule.List(rule.Integer(1, 65535), 100)}),
	"mcp":          rule.AnyObject, // the SDK starts the gateway itself, as a command in the sandbox
	"iam":          rule.Unsupported,
	"volumeMounts": mountsBody,
}, "templateID")

// A createRequest is the body of POST /v2/sandboxes.
type createRequest struct {
	Template   string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"` // seconds
	Metadata   map[string]string `json:"metadata"`
	Env        map[string]string `json:"envVars"`
	Internet   *bool             `json:"allow_internet_access"`
	Secure     *bool             `json:"secure"` // false is accepted: old SDKs send it. The sandbox has a token anyway
	AutoPause  bool              `json:"autoPause"`
	KeepMemory *bool             `json:"autoPauseMemory"`
	AutoResume struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network network `json:"network"`
	Volumes []mount `json:"volumeMounts"`
}

// A sandbox is what a client needs to use one.
type sandbox struct {
	TemplateID  string `json:"templateID"`
	SandboxID   string `json:"sandboxID"`
	ClientID    string `json:"clientID"`
	Alias       string `json:"alias,omitempty"` // the name of the template
	EnvdVersion string `json:"envdVersion"`
	AccessToken string `json:"envdAccessToken,omitempty"`

	TrafficToken string `json:"trafficAccessToken,omitempty"` // see interpreters.admit
	Domain       string `json:"domain,omitempty"`             // parent domain of the host names of ports
}

// A detail is a sandbox as lists show it.
type detail struct {
	sandbox
	StartedAt  string            `json:"startedAt"` // RFC 3339
	EndAt      string            `json:"endAt"`
	CPUCount   int               `json:"cpuCount"`
	MemoryMB   int64             `json:"memoryMB"`
	DiskSizeMB int64             `json:"diskSizeMB"`
	State      string            `json:"state"` // running or paused
	Metadata   map[string]string `json:"metadata"`
	Lifecycle  *lifecycle        `json:"lifecycle,omitempty"`
	Volumes    []mount           `json:"volumeMounts,omitempty"`

	Internet *bool        `json:"allowInternetAccess,omitempty"`
	Network  *networkInfo `json:"network,omitempty"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// sandboxes serves the control plane of sandboxes.
type sandboxes struct {
	containers *container.Service
	deadlines  *deadline.Service
	builds     *build.Service
	tokens     *tokens
	meter      *meter
	memory     bool // whether the driver can store the memory of containers
	maxIdle    time.Duration
	cpu        float64 // cores of a container
	disk       int64   // bytes that a container may write
	domain     string  // parent domain of the host names of ports; empty is localhost
	now        func() time.Time
}

// describe describes a sandbox to the holder of a key, with its tokens.
func (h *sandboxes) describe(r *http.Request, key berth.KeyID, id berth.ContainerID, rec *deadline.Record) sandbox {
	return sandbox{TemplateID: rec.Template, SandboxID: nameOf(id), ClientID: "berth", Alias: rec.Alias,
		EnvdVersion:  envdVersion,
		AccessToken:  h.tokens.give(accessPurpose, string(id), key),
		TrafficToken: h.tokens.give(trafficPurpose, string(id), key), Domain: h.domainFor(r)}
}

// detail describes a sandbox without its tokens.
func (h *sandboxes) detail(r *http.Request, rec *deadline.Record, c *berth.Container) detail {
	const layout = "2006-01-02T15:04:05.000Z07:00"
	out := detail{sandbox: h.describe(r, "", c.ID, rec), StartedAt: time.UnixMilli(rec.StartedAt).UTC().Format(layout),
		EndAt:    time.Unix(rec.Deadline, 0).UTC().Format(layout),
		CPUCount: max(1, int(h.cpu)), MemoryMB: berth.MemoryLimits[c.MemoryLimit] >> 20, DiskSizeMB: h.disk >> 20,
		State: "running", Metadata: rec.Metadata, Volumes: mountsIn(c.Berth.Volumes)}
	out.AccessToken, out.TrafficToken = "", ""
	if rec.Paused {
		out.State = "paused"
		out.EndAt = time.Now().UTC().Add(h.maxIdle).Format(layout)
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

// create serves POST /v2/sandboxes.
func (h *sandboxes) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.createFor(x, r, c, defaultTimeout)
}

// createOld serves POST /sandboxes.
func (h *sandboxes) createOld(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.createFor(x, r, c, defaultTimeoutOld)
}

func (h *sandboxes) createFor(x *exchange.Exchange, r *http.Request, c berth.Caller, timeout int64) error {
	var body createRequest
	if err := x.Decode(r, createBody, &body); err != nil {
		return err
	}
	if body.Timeout != nil {
		timeout = *body.Timeout
	}
	if err := body.checkPause(); err != nil {
		return err
	}
	if body.Secure != nil && !*body.Secure && body.Network.ports().Private {
		return berth.Invalid("secure",
			"You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
	}
	outward := deadline.Outward{Internet: body.Internet, AllowOut: body.Network.AllowOut, DenyOut: body.Network.DenyOut,
		Rules: body.Network.Rules, Proxy: body.Network.Proxy}
	policy, transforms, err := policyOf(&outward)
	if err != nil {
		return err
	}
	outward.Proxy = outward.Proxy.Shown()
	req := container.CreateRequest{Name: "e2b", Unnamed: true, NetworkPolicy: policy, Transforms: transforms,
		ExpiresAfter: &berth.ExpiresAfter{Anchor: "last_active_at", Minutes: int(h.maxIdle / time.Minute)}}
	rec := &deadline.Record{Template: body.Template, Metadata: body.Metadata, OnTimeout: deadline.OnTimeoutKill,
		KeepAtTimeout: kept(body.KeepMemory), AutoResume: body.AutoResume.Enabled, Ports: body.Network.ports(),
		Outward: outward}
	req.Env = environment(nil, body.Env)
	req.Source.Volumes, req.Source.Network = mountsOf(body.Volumes), groupOf(body.Metadata)
	t, from, release, err := h.builds.Use(r.Context(), c.Project, body.Template)
	if err != nil {
		return err
	}
	if t != nil {
		defer release()
	}
	if t == nil {
		if req.Source.Template, err = build.ServerTemplate(body.Template); err != nil {
			return err
		}
		rec.Alias, _, _ = strings.Cut(body.Template, ":")
	} else {
		if len(t.Names) > 0 {
			rec.Alias = t.Names[0]
		}
		req.Source.SnapshotID, rec.Template, rec.Build, rec.User, rec.Dir = from.Snapshot, t.ID, from.ID, from.User,
			from.Dir
		req.Env = environment(from.Env, body.Env)
		if from.Start != nil {
			rec.Start = &deadline.Start{Command: from.Start.Command, User: from.Start.User, Dir: from.Start.Dir}
		}
		if !from.Memory {
			req.MemoryLimit = from.MemorySize
		}
	}
	rec.Env = req.Env
	now := h.now()
	made, err := h.containers.Create(r.Context(), c, req)
	if err != nil {
		return err
	}
	rec.StartedAt, rec.Timeout, rec.Deadline = now.UnixMilli(), timeout, now.Unix()+timeout
	if body.AutoPause {
		rec.OnTimeout = deadline.OnTimeoutPause
	}
	if err := h.deadlines.Create(r.Context(), c.Project, made, rec); err != nil {
		h.deadlines.Discard(c.Project, made.ID)
		return err
	}
	if t != nil {
		h.builds.Spawned(r.Context(), c.Project, t.ID)
		if rec.Start != nil && !from.Memory {
			if err := h.startIn(r.Context(), c, made.ID, rec.Start); err != nil {
				return errors.Join(err, h.deadlines.End(context.WithoutCancel(r.Context()), c.Project, made.ID))
			}
		}
	}
	return x.JSON(http.StatusCreated, h.describe(r, c.Key, made.ID, rec))
}

// checkPause refuses a pause without memory that would have no effect, or would end by a request to a port.
func (b *createRequest) checkPause() error {
	switch {
	case kept(b.KeepMemory) == deadline.Memory:
		return nil
	case !b.AutoPause:
		return berth.Invalid("autoPauseMemory", "'autoPauseMemory' is false, which needs 'autoPause'.")
	case b.AutoResume.Enabled:
		return berth.Invalid("autoPauseMemory",
			"'autoPauseMemory' is false, and requests do not resume a sandbox without memory. Omit 'autoResume'.")
	}
	return nil
}

// environment returns variables as NAME=value. Those of a request replace those of a template.
func environment(template []string, own map[string]string) []string {
	all := map[string]string{}
	for _, pair := range template {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	maps.Copy(all, own)
	var env []string
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// startIn starts the start command of a template in a new sandbox.
func (h *sandboxes) startIn(ctx context.Context, c berth.Caller, id berth.ContainerID,
	start *deadline.Start) error {
	door, release, err := h.containers.Access().Door(ctx, c, id)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	_, err = door.Client().Start(ctx, guest.ProcessRequest{User: start.User, Cmd: "/bin/sh",
		Args: []string{"-l", "-c", start.Command}, Dir: start.Dir})
	if err != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The start command of the template could not be started."}
	}
	return nil
}

// get serves GET /sandboxes/{sandbox}.
func (h *sandboxes) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	rec, made, err := h.deadlines.Read(r.Context(), c.Project, sandboxOf(r))
	if err != nil {
		return err
	}
	out := h.detail(r, rec, made)
	out.AccessToken = h.tokens.give(accessPurpose, string(made.ID), c.Key)
	out.Lifecycle = &lifecycle{rec.AutoResume, rec.OnTimeout}
	out.Internet, out.Network = rec.Outward.Internet, networkOf(rec)
	return x.JSON(http.StatusOK, out)
}

// kill serves DELETE /sandboxes/{sandbox}.
func (h *sandboxes) kill(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := sandboxOf(r)
	if _, _, err := h.deadlines.Read(r.Context(), c.Project, id); err != nil {
		return err
	}
	if err := h.deadlines.End(r.Context(), c.Project, id); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// setTimeout serves POST /sandboxes/{sandbox}/timeout: the sandbox ends that many seconds from now.
func (h *sandboxes) setTimeout(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Timeout int64 `json:"timeout"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"timeout": rule.Integer(0, maxTimeout)}, "timeout"),
		&body); err != nil {
		return err
	}
	return h.setDeadline(x, r, c, func(int64) int64 { return h.now().Unix() + body.Timeout })
}

// refresh serves POST /sandboxes/{sandbox}/refreshes: the sandbox lives for at least the
// duration of the request from now.
func (h *sandboxes) refresh(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Duration *int64 `json:"duration"`
	}
	if err := x.DecodeOptional(r, rule.Object(rule.Fields{"duration": rule.Integer(0, 3600)}), &body); err != nil {
		return err
	}
	seconds := int64(60)
	if body.Duration != nil {
		seconds = *body.Duration
	}
	return h.setDeadline(x, r, c, func(now int64) int64 { return max(now, h.now().Unix()+seconds) })
}

func (h *sandboxes) setDeadline(x *exchange.Exchange, r *http.Request, c berth.Caller,
	change func(was int64) int64) error {
	id := sandboxOf(r)
	if _, _, err := h.deadlines.Read(r.Context(), c.Project, id); err != nil {
		return err
	}
	_, err := h.deadlines.Update(r.Context(), c.Project, id, func(rec *deadline.Record) error {
		if until := change(rec.Deadline); !rec.Paused && until != rec.Deadline {
			h.deadlines.SetDeadline(c.Project, id, rec, until)
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// resume resumes the container of a paused sandbox. If that has no memory, the start command of its template runs
// again.
func (h *sandboxes) resume(ctx context.Context, c berth.Caller, id berth.ContainerID, rec *deadline.Record) error {
	if err := h.deadlines.Resume(ctx, c.Project, id, rec); err != nil {
		return err
	}
	if rec.FilesOnly && rec.Start != nil {
		return h.startIn(ctx, c, id, rec.Start)
	}
	return nil
}

// connectBody checks the body of connect and resume.
var connectBody = rule.Object(rule.Fields{"timeout": rule.Integer(0, maxTimeout), "autoPause": rule.Boolean,
	"memory": onlyTrue})

// connect serves POST /sandboxes/{sandbox}/connect and /resume: it resumes a paused sandbox, and
// never brings the deadline of a running one forward.
func (h *sandboxes) connect(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Timeout   *int64 `json:"timeout"`
		AutoPause *bool  `json:"autoPause"`
	}
	if err := x.DecodeOptional(r, connectBody, &body); err != nil {
		return err
	}
	id := sandboxOf(r)
	done, err := h.deadlines.Turn(r.Context(), id)
	if err != nil {
		return err
	}
	defer done()
	before, _, err := h.deadlines.Read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	if before.Paused {
		if err := h.resume(r.Context(), c, id, before); err != nil {
			return err
		}
	}
	until := h.now().Unix() + *cmp.Or(body.Timeout, new(int64(defaultTimeout)))
	rec, err := h.deadlines.Update(r.Context(), c.Project, id, func(rec *deadline.Record) error {
		if body.AutoPause != nil {
			rec.OnTimeout = deadline.OnTimeoutKill
			if *body.AutoPause {
				rec.OnTimeout = deadline.OnTimeoutPause
			}
		}
		switch {
		case rec.Paused:
			h.deadlines.SetResumed(c.Project, id, rec, until)
		case until > rec.Deadline:
			h.deadlines.SetDeadline(c.Project, id, rec, until)
		}
		return nil
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if before.Paused {
		status = http.StatusCreated
	}
	return x.JSON(status, h.describe(r, c.Key, id, rec))
}
