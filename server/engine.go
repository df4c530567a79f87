package server

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/metrics"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/codeinterpreter"
	"github.com/berth-run/berth/tool/computer"
	"github.com/berth-run/berth/tool/imagegeneration"
	"github.com/berth-run/berth/tool/mcp"
	"github.com/berth-run/berth/tool/shell"
	"github.com/berth-run/berth/tool/standard"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/webhook"
)

// engineParts holds the engine and the parts that it uses.
type engineParts struct {
	engine    *engine.Engine
	journal   *journal.Journal
	models    *model.Router
	upstreams func() []berth.Upstream
	webhooks  *webhook.Service
	status    *statuses
	memory    memoryPools
}

// startEngine creates the engine and resumes the responses in progress.
func (s *Server) startEngine(ctx context.Context, b *base, to *upstreams, data *blobs, c *containers) (*engineParts,
	error) {
	r := &engineParts{models: to.routes.Router, upstreams: to.routes.Statuses, memory: limitMemory(b.Log).pools()}
	s.metrics.Collect(metrics.Sources{Containers: c.service, Upstreams: r.upstreams, Snapshots: data.totals,
		Audit: b.audit.Written, Forwarded: s.forwarded.behind, Usages: b.db,
		Spending: b.spending, Space: b.space, Isolation: c.driver.Features().Isolation})
	r.journal = journal.New(s.metrics.Responses(b.db))
	r.journal.Bound(r.memory.readers)
	if w, ok := b.disk.(store.Watcher); ok {
		r.journal.Watch(w)
	}
	r.journal.AtEnd(s.metrics.AtEnd)
	r.status = &statuses{started: time.Now(), containers: c.service, upstreams: r.upstreams, space: b.space,
		backup: func() *berth.BackupStatus { return state.LastBackup(b.State) }}
	r.journal.AtEnd(r.status.atEnd)
	r.webhooks = webhook.New(b.db, b.proxies, b.Log)
	r.journal.AtEnd(r.webhooks.AtEnd)
	r.journal.AtEnd(b.users.AtEnd)
	s.later(b.startOnce("webhooks", r.webhooks.Run))
	opts, err := engineOptions(b.Config, b.proxies)
	if err != nil {
		return nil, err
	}
	opts.Responses, opts.Runs, opts.Objects, opts.Usages = b.db, b.db, b.db, b.db
	opts.Journal, opts.Models, opts.Containers, opts.Files = r.journal, r.models, c.service.Provider(), data.files
	opts.Forwarder = to.forwarder
	opts.Tools, err = tools(b, c.service.Access(), data.vectors, images{to.forwarder}, r.memory.decoding)
	if err != nil {
		return nil, err
	}
	opts.Owner, opts.Seal, opts.Quota, opts.Log = b.node, b.keys, b.quota, b.Log
	opts.Answered = recordAnswers(b.audit)
	opts.EndUsers, opts.Stores, opts.Held = b.users, b.retention.Stores, b.holds.Check
	opts.Room = func() error { return b.space.Admit() }
	opts.Observer, opts.Tracer = metrics.Engine{Metrics: s.metrics}, b.tracer
	if opts.Placement = b.cluster; !b.cluster.Alone() {
		// Another server may delete what this one has cached.
		opts.Limits.Lease, opts.Limits.Cache = b.Config.Cluster.Lease, 1
	}
	r.engine = engine.New(opts)
	s.metrics.Running(r.engine.Running)
	r.status.running = r.engine.Running
	s.detach = r.engine.Close
	s.later(s.detach)
	if err := r.engine.Recover(ctx); err != nil { // after startContainers: containers have their sandboxes again
		return nil, fmt.Errorf("resume responses: %w", err)
	}
	s.later(b.startOnce("vector_stores", data.vectors.Run))
	return r, nil
}

// tools returns the tools that models may call.
func tools(b *base, containers *container.Access, vectors *vectorstore.Service, pictures images,
	decoding *ration.Pool) (*tool.Registry, error) {
	config, log := b.Config, b.Log
	limits := shell.Limits{Timeout: config.Shell.Timeout, MaxTimeout: config.Shell.MaxTimeout,
		Output: config.Shell.Output}
	servers := mcp.Options{Containers: containers, Timeout: config.MCP.Timeout, Decoding: decoding, Log: log}
	if policy := policyOf(config.MCP.Allowed, config.MCP.Private); policy != nil {
		servers.Gate = gateOf(policy, b.proxies)
	}
	web, err := webSearchOptions(config.WebSearch, b.proxies, log)
	if err != nil {
		return nil, config.In(err)
	}
	return tool.NewRegistry(standard.Kinds(standard.Options{Containers: containers, Kernels: containers,
		Desktops: containers, Editors: containers, Shell: limits,
		Environment:  shellEnvironment(config.Shell, b.quota.Limits),
		Computer:     computer.Limits{Timeout: config.Shell.Timeout},
		Code:         codeinterpreter.Limits{Timeout: config.Shell.Timeout, Output: config.Shell.Output},
		VectorStores: vectors, MCP: servers, WebSearch: web,
		Images: imagegeneration.Options{Model: config.Images.Model, Images: pictures, Log: log}})...), nil
}

// shellEnvironment returns the environment of a project's shells without one.
func shellEnvironment(defaults config.Shell,
	limits func(context.Context, berth.ProjectID) (berth.Limits, error)) shell.DefaultEnvironment {
	return func(ctx context.Context, p berth.ProjectID) (string, error) {
		of, err := limits(ctx, p)
		if err != nil {
			return "", err
		}
		if cmp.Or(of.ShellEnvironment, berth.DefaultEnvironment(defaults.DefaultEnvironment)) == berth.DefaultLocal {
			return berth.EnvironmentLocal, nil
		}
		return berth.EnvironmentAuto, nil
	}
}

// engineOptions returns the configured options of the engine.
func engineOptions(config *config.Config, proxies *proxy.Selector) (engine.Options, error) {
	budget, err := config.Budget.Parse()
	if err != nil {
		return engine.Options{}, err
	}
	opts := engine.Options{Limits: engine.Limits{Budget: budget, Output: int64(config.Responses.MaxOutput),
		Cache: int64(config.Responses.History)},
		Retry: retryOf(config)}
	if policy := policyOf(config.Fetch.Allowed, config.Fetch.Private); policy != nil {
		opts.Fetcher = download.New(gateOf(policy, proxies), engine.MaxInlineFile)
	}
	return opts, nil
}
