package container

import (
	"context"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// planner validates requests for containers.
type planner struct {
	opts      *Options
	networks  *networks
	volumes   *volumes
	snapshots *Snapshots
	files     *Files
}

// plan validates a request.
func (pn *planner) plan(ctx context.Context, p berth.ProjectID, req CreateRequest) (*plan, error) {
	return pn.planFrom(ctx, p, req, nil)
}

// planFrom is plan for a container that gets the content of another, or nil. It has the other's
// template.
func (pn *planner) planFrom(ctx context.Context, p berth.ProjectID, req CreateRequest, copies *contentCopy) (*plan,
	error) {
	now := pn.opts.clock.Now().Unix()
	c := &berth.Container{ID: berth.ContainerID(berth.NewID(berth.PrefixContainer)), Object: "container",
		CreatedAt: now, Status: berth.ContainerRunning, LastActiveAt: now, Name: req.Name, MemoryLimit: req.MemoryLimit,
		ExpiresAfter:  berth.ExpiresAfter{Anchor: "last_active_at", Minutes: pn.opts.Expiry.IdleMinutes},
		NetworkPolicy: withoutSecrets(req.NetworkPolicy),
		Berth: berth.ContainerBerth{Isolation: pn.opts.Driver.Features().Isolation, Starting: true,
			Server: pn.opts.Server, UniqueName: req.UniqueName}}
	if c.MemoryLimit == "" {
		c.MemoryLimit = defaultMemory
	}
	if berth.MemoryLimits[c.MemoryLimit] == 0 {
		return nil, berth.Invalid("memory_limit",
			"Invalid value: '%s'. Supported values are: '1g', '4g', '16g', and '64g'.", req.MemoryLimit)
	}
	if e := req.ExpiresAfter; e != nil {
		if e.Anchor != "last_active_at" {
			return nil, berth.Invalid("expires_after.anchor",
				"Invalid value: '%s'. Supported values are: 'last_active_at'.", e.Anchor)
		}
		if e.Minutes < 1 || e.Minutes > pn.opts.Expiry.MaxIdleMinutes {
			return nil, berth.Invalid("expires_after.minutes",
				"Invalid value: %d. Containers of this server expire after 1 to %d minutes.", e.Minutes,
				pn.opts.Expiry.MaxIdleMinutes)
		}
		c.ExpiresAfter = *e
	}
	var err error
	if c.Berth.Network, err = pn.networks.groupOf(&req); err != nil {
		return nil, err
	}
	if _, err := pn.networks.parse(c.ID, req.NetworkPolicy, req.Transforms); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(req.Env, func(kv string) bool {
		return strings.Index(kv, "=") < 1 || strings.Contains(kv, "\x00")
	}); i >= 0 {
		return nil, berth.Invalid("env", "An environment variable has no name or contains a NUL byte.")
	}
	pl := &plan{requestedAt: pn.opts.clock.Now(), body: c, env: req.Env, requestEnv: req.Env, files: req.FileIDs,
		policy: req.NetworkPolicy, transforms: req.Transforms, copies: copies}
	if err := pn.source(ctx, p, pl, req.Source); err != nil {
		return nil, err
	}
	if err := pn.checkMemory(pl, req.MemoryLimit); err != nil {
		return nil, err
	}
	if err := pn.planSkills(ctx, p, pl, req); err != nil {
		return nil, err
	}
	return pl, pn.files.checkUploads(ctx, p, req.FileIDs)
}

// source resolves the template, the snapshot and the volumes of a request.
func (pn *planner) source(ctx context.Context, p berth.ProjectID, pl *plan, src berth.ContainerSource) error {
	c := pl.body
	ref := src.Template
	if ref != "" && src.SnapshotID != "" {
		return berth.Invalid("berth.template", "A container starts from a template or from a snapshot, not from both.")
	}
	if ref != "" {
		if err := pn.opts.MayName(ctx, p, ref); err != nil {
			return err
		}
	}
	if src.SnapshotID != "" {
		from, err := pn.snapshots.get(ctx, p, src.SnapshotID)
		if err != nil {
			return err
		}
		pl.from, ref = from, from.Snapshot.Template
		if from.Snapshot.Cause == berth.SnapshotImported && ref != "" { // a bundle may name any template
			if err := pn.opts.MayName(ctx, p, ref); err != nil {
				return err
			}
		}
		c.Berth.FromSnapshot, c.Berth.Skills = src.SnapshotID, slices.Clone(from.Skills)
		c.Berth.EndUser = from.Snapshot.EndUser
	}
	if pl.copies != nil {
		ref, c.Berth.Skills = pl.copies.from.body.Berth.Template, pl.copies.from.listSkills()
	}
	switch src.OnExpiry {
	case "":
		c.Berth.OnExpiry = pn.opts.Expiry.Action
	case berth.OnExpiryDelete, berth.OnExpirySnapshot:
		c.Berth.OnExpiry = src.OnExpiry
	default:
		return berth.Invalid("berth.on_expiry", "Invalid value: '%s'. Supported values are: 'delete' and 'snapshot'.",
			src.OnExpiry)
	}
	if c.Berth.OnExpiry == berth.OnExpirySnapshot && pn.opts.Snapshots == nil {
		return errNoSnapshots
	}
	c.Berth.KeepAwake = src.KeepAwake
	if err := pn.volumes.resolve(ctx, p, c, src.Volumes); err != nil {
		return err
	}
	t, err := pn.opts.Template(ref)
	if err != nil {
		return asUnavailable(err,
			"This server has no template to start containers from. Its operator can build one with berth image build.")
	}
	c.Berth.Template, pl.template, pl.env = t.Digest, t.Template, slices.Concat(t.Env, pl.env)
	return nil
}

// checkMemory returns an error for the client if the plan restores memory and this server
// cannot do that. Otherwise it sets the container's memory limit. limit is that of the
// request.
func (pn *planner) checkMemory(pl *plan, limit string) error {
	r := pl.memory()
	if r == nil && pl.withMemory() {
		_, err := pn.snapshots.driver("memory")
		return err
	}
	if r == nil {
		return nil
	}
	if _, err := pn.snapshots.driver("berth.snapshot_id"); err != nil {
		return err
	}
	if len(pl.body.Berth.Volumes) > 0 {
		return berth.Invalid("berth.volumes", "A container that starts from the memory of another cannot have volumes.")
	}
	if have := pn.opts.Driver.Features().Isolation; r.Isolation != have {
		return berth.Invalid("berth.snapshot_id",
			"Snapshot '%s' has the memory of a sandbox of %s, which %s cannot restore.", r.Snapshot.ID, r.Isolation,
			have)
	}
	if limit != "" && limit != r.Snapshot.MemoryLimit {
		return berth.Invalid("memory_limit",
			"Invalid value: '%s'. A container that starts from the memory of another must have the same limit, '%s'.",
			limit, r.Snapshot.MemoryLimit)
	}
	pl.body.MemoryLimit = r.Snapshot.MemoryLimit
	return nil
}
