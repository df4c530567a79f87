package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/api/e2b"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/console"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/container/command"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/conversations"
	"github.com/berth-run/berth/idempotency"
	"github.com/berth-run/berth/metrics"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/prompts"
	"github.com/berth-run/berth/responses"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/schedules"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/server/templates"
	"github.com/berth-run/berth/threads"
	"github.com/berth-run/berth/traces"
	"github.com/berth-run/berth/usage"
)

// longestImport is when an import of a cluster counts as interrupted.
const longestImport = time.Hour

// spoolDir returns the directory of unnamed temporary files, which is not /tmp: that may be in memory.
func (b *base) spoolDir() (string, error) {
	dir := filepath.Join(b.State, "spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create spool directory: %w", err)
	}
	return dir, nil
}

// newHandler creates the API, after undoing imports that a crash interrupted.
func (s *Server) newHandler(ctx context.Context, b *base, data *blobs, c *containers, r *engineParts,
	batches *batch.Service, planned *schedules.Service) (http.Handler, error) {
	spool, err := b.spoolDir()
	if err != nil {
		return nil, err
	}
	longest := time.Duration(0)
	if !b.cluster.Alone() {
		longest = longestImport
	}
	bundles := bundle.New(bundle.Options{Longest: longest, Responses: b.db, Containers: b.db,
		Objects: b.unguarded, // an interrupted import is undone also in a held project
		Engine:  r.engine, Journal: r.journal,
		ContainerService: c.service, Snapshots: data.snapshots, Files: data.files, Templates: c.templates.Has,
		Quota: b.quota.Store, Decoding: r.memory.decoding, SpoolDir: spool, Version: b.Build.Version})
	if !b.cluster.Alone() {
		s.later(b.startOneWorker("imports", 0, sweepInterval, func(ctx context.Context) {
			if err := bundles.Recover(ctx, b.Log); err != nil && ctx.Err() == nil {
				b.Log.Error("failed to undo interrupted imports; will retry", "err", err)
			}
		}))
	} else if err := bundles.Recover(ctx, b.Log); err != nil {
		return nil, fmt.Errorf("undo interrupted imports: %w", err)
	}
	volumes := data.volumes
	if !c.driver.Features().Mounts || !b.cluster.Alone() { // a volume is on one machine
		volumes = nil
	}
	var pages func(http.Handler, api.Access) http.Handler
	if b.Config.Console {
		projects := project.New(project.Options{Objects: b.db, Keys: b.db, Audit: b.audit})
		pages = func(handler http.Handler, access api.Access) http.Handler {
			var options []console.Option
			if b.door != nil {
				options = append(options, console.WithSignIn(b.door), console.WithLogins(b.people))
			}
			c := console.New(handler, b.Log, options...)
			c.Access = console.Access(access)
			if b.people != nil {
				c.People = func(ctx context.Context, id string) string {
					if p, err := b.people.Get(ctx, id); err == nil {
						return p.Label()
					}
					return "" // the console shows the id
				}
			}
			c.Keys = func(ctx context.Context) map[berth.KeyID]string {
				names := map[berth.KeyID]string{}
				keys, err := projects.ListKeys(ctx)
				for _, k := range keys {
					names[k.ID] = k.Name
				}
				if err != nil {
					return nil // the console shows the ids
				}
				return names
			}
			c.Names = func(ctx context.Context, id berth.ProjectID) string {
				if p, err := projects.Get(ctx, id); err == nil {
					return p.Name
				}
				return "" // the console shows the id
			}
			return c
		}
	}
	_, memory := c.driver.(sandbox.Snapshotter)
	mirror, err := templates.NewMirror(b.Config.Pulls.Mirror)
	if err != nil {
		return nil, err
	}
	images := &templates.Puller{Templates: c.templates, Registries: b.Config.E2B.Registries, Mirror: mirror,
		Proxies:   b.proxies,
		UserAgent: "berth/" + b.Build.Version,
		Quota:     b.quota, Most: int64(b.Config.E2B.ImageSize),
		InUse: func(ctx context.Context) (map[string]bool, error) {
			used, err := state.TemplateReferences(ctx, b.db, data.snapshots)
			if err == nil {
				maps.Copy(used, c.service.Templates())
			}
			return used, err
		}}
	deadlines := deadline.New(deadline.Options{Containers: c.service,
		Remove: remover{c.service, r.engine, b.cluster}.Delete, Placement: b.cluster, Objects: b.db,
		Deliveries: r.webhooks, CPU: b.Config.Containers.CPU, Log: b.Log})
	s.later(inBackground(deadlines.Run))
	builds := build.New(build.Options{Containers: c.service, Placement: b.cluster, Snapshots: data.snapshots,
		Files: data.files, Images: images, Server: b.node, Memory: memory, Objects: b.db, Log: b.Log,
		Limits: build.Limits{AtOnce: b.Config.E2B.Builds, Time: b.Config.E2B.BuildTime},
		Idle:   b.Config.Pulls.Idle, Running: b.db.RunningContainers, Projects: b.projectIDs})
	images.Room = reclaim(b, builds, s)
	s.later(inBackground(builds.Run))
	sandboxes := e2b.New(e2b.Options{Deadlines: deadlines, Builds: builds, Placement: b.cluster, Containers: c.service,
		Files: data.files, Volumes: volumes, Secrets: c.secrets, Memory: memory, Webhooks: r.webhooks,
		Secret: b.keys.Current, MaxIdle: b.Config.Containers.MaxIdle,
		CPU: b.Config.Containers.CPU, Disk: int64(b.Config.Containers.Disk), Domain: b.Config.Preview.Domain,
		Keys: b.callers, Log: b.Log, Now: time.Now})
	remove := remover{c.service, r.engine, b.cluster}.Delete
	ssh, err := s.openSSH(ctx, b, c.service)
	if err != nil {
		return nil, err
	}
	talks := threads.New(threads.Options{Objects: b.db, Responses: b.db, Engine: r.engine, Journal: r.journal,
		Files: data.files, ContainerFiles: c.service.Files(), VectorStores: data.vectors, Log: b.Log})
	setRemovers(b, data, r, remover{c.service, r.engine, b.cluster})
	setSources(b, data, r, remover{c.service, r.engine, b.cluster}, talks)
	s.startRetention(b)
	s.later(continueDeletions(b))
	sessions := session.New(session.Options{Containers: c.service, Log: b.Log, Snapshots: true})
	s.later(func(context.Context) error { sessions.Close(); return nil })
	return api.New(api.Options{
		Sandboxes: sandboxes,
		SSH:       ssh,
		Approvals: newApprovals(b),
		SignIn:    s.programSignIn(b),
		SCIM:      s.provisioning(b),
		MCP: api.MCPOptions{Sessions: sessions, Commands: command.New(command.Options{Containers: c.service.Access()}),
			Remove: remove},
		OpenTerminal: openTerminal(b.Config.Terminal, c.service, b.Log),
		Shells:       shells(c.service.Access()),
		Console:      pages,
		Exchange: exchange.Options{Placement: b.cluster, Keys: b.callers, Repeats: idempotency.New(b.db),
			Closed: !s.open, Used: s.noteUses(b), Read: recordReads(b.audit),
			Origins: b.Config.CORS.Origins,
			Quota:   b.quota, Space: admission{b.space, &s.forwarded},
			Observer: metrics.API{Metrics: s.metrics}, Tracer: b.tracer, Log: b.Log,
			Memory: exchange.Memory{Readers: r.memory.readers, Bodies: r.memory.bodies, Decoding: r.memory.decoding}},
		Rooms: api.Rooms{Responses: responses.New(b.db), Conversations: conversations.New(r.engine, b.db),
			Prompts: prompts.New(b.db), Completions: completions.New(b.db), Traces: traces.New(b.db),
			Usage: usage.New(b.db), EndUsers: b.users,
			Threads: talks, Retention: b.retention},
		Engine: r.engine, Journal: r.journal, Webhooks: r.webhooks, Containers: c.service, Templates: c.templates,
		Files: data.files, Uploads: data.uploads, Skills: data.skills, Batches: batches, Schedules: planned,
		Snapshots: data.snapshots, Volumes: volumes, Bundles: bundles, VectorStores: data.vectors,
		Projects: project.New(project.Options{Objects: b.db, Keys: b.db, Audit: b.audit, Owners: b.people.Owner,
			Held: b.holds.Any}),
		Models: api.ModelOptions{Models: r.models, Upstreams: r.upstreams, Currency: b.Config.Currency,
			Priced: s.priced.Load},
		Preview: api.PreviewOptions{Seal: b.keys.Newest(), Domain: b.Config.Preview.Domain},
		Status:  r.status.get, Audit: b.audit,
		Ready: newReadiness(b.disk, c.driver, c.templates.Find, b.space, data.contents.Bucket, b.Log).get,
		Build: b.Build}), nil
}
