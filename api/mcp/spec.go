package mcp

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/internal/rule"
)

// read reads the container that a request's query and headers describe. The operator's limits apply when it is created.
func (v *visit) read(r *http.Request) error {
	q := exchange.NewQuery(r)
	v.spec = session.Spec{Name: cmp.Or(q.Text("container"), r.Header.Get(containerHeader)),
		Template:    q.Text("template"),
		MemoryLimit: q.OneOf("memory_limit", "1g", "4g", "16g", "64g"),
		IdleMinutes: int(q.Integer("idle_minutes", 0, 1, 1<<31-1)), Network: networkOf(q.Text("network"))}
	v.ask = cmp.Or(q.OneOf("approval", "always", askConsole, askNever), askNever)
	if err := q.End(); err != nil {
		return err
	}
	return rule.Text(0, 256)("container", v.spec.Name)
}

// networkOf returns the policy of a parameter: "open", "disabled", or a list of names such as "pypi.org,*.npmjs.org".
func networkOf(text string) *berth.NetworkPolicy {
	switch text {
	case "":
		return nil
	case "open", "disabled":
		return &berth.NetworkPolicy{Type: text}
	}
	return &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: strings.Split(text, ",")}
}

// name returns the name of the request's container, or "" for one of the session's own.
func (v *visit) name() string {
	if v.spec.Name != "" || v.request.Header.Get(versionHeader) < sessionless {
		return v.spec.Name
	}
	if key := string(v.caller.Key); len(key) > 12 {
		return "mcp-" + key[len(key)-12:]
	}
	return "mcp"
}

// container returns the container that a call means: that of its argument, or that of the request.
func (v *visit) container(ctx context.Context, argument string) (berth.ContainerID, error) {
	spec := v.spec
	switch {
	case argument != "":
		if err := rule.Text(1, 256)("container", argument); err != nil {
			return "", err
		}
		spec.Name = argument
	case v.session != nil:
		return v.session.Container(ctx, v.caller)
	default:
		spec.Name = v.name()
	}
	return v.door.Sessions.Find(ctx, v.caller, spec)
}

// existing returns the container of the request, or "" if it has none yet.
func (v *visit) existing(ctx context.Context) (berth.ContainerID, error) {
	if v.session != nil && v.session.Current() != "" {
		return v.session.Current(), nil
	}
	if v.name() == "" {
		return "", nil
	}
	return v.door.Sessions.Existing(ctx, v.caller.Project, v.name())
}
