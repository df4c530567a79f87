package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/rule"
)

const exposeText = `Returns a URL with which the user can reach an HTTP server that listens on a port in the container.`

type exposeInput struct {
	Port    int `json:"port" jsonschema:"1 to 65535."`
	Minutes int `json:"minutes,omitempty" jsonschema:"How long the URL works. Default 60, at most a week."`
	inContainer
}

type exposeOutput struct {
	URL       string `json:"url"`
	HostURL   string `json:"host_url,omitempty" jsonschema:"The same under a host of its own, for pages that need one."`
	ExpiresAt string `json:"expires_at"`
}

func expose(ctx context.Context, c *call, in exposeInput) ([]sdk.Content, exposeOutput, error) {
	if in.Port < 1 || in.Port > 65535 {
		return nil, exposeOutput{}, berth.Invalid("port", "Invalid 'port'. Expected a number from 1 to 65535.")
	}
	const week = 7 * 24 * 60
	if in.Minutes < 0 || in.Minutes > week {
		return nil, exposeOutput{}, berth.Invalid("minutes", "Invalid 'minutes'. Expected a number from 1 to %d.", week)
	}
	id, err := c.container(ctx, in.Container)
	if err != nil {
		return nil, exposeOutput{}, err
	}
	l, err := c.door.Link(c.visit.request, c.caller, id, in.Port, time.Duration(valueOr(in.Minutes, 60))*time.Minute)
	if err != nil {
		return nil, exposeOutput{}, err
	}
	out := exposeOutput{URL: l.URL, HostURL: l.HostURL, ExpiresAt: time.Unix(l.ExpiresAt, 0).UTC().Format(time.RFC3339)}
	return text(out.URL), out, nil
}

const containersText = `Manages containers. Actions:
- list: the project's running containers.
- create: a container with a name, or a new nameless one. Use its id or name as 'container' of the other tools.
- snapshot: saves the files of a container. fork: copies a container with its files.
- restore: a new container from a snapshot, by snapshot.
- delete: ends a container and deletes its files.`

type manageInput struct {
	Action    string `json:"action" jsonschema:"list, create, snapshot, fork, restore or delete."`
	Container string `json:"container,omitempty" jsonschema:"Name or id. For delete it is required; for snapshot and fork the default is that of this connection."`
	Name      string `json:"name,omitempty" jsonschema:"Of what is created."`
	Snapshot  string `json:"snapshot,omitempty" jsonschema:"Id of the snapshot to restore."`
	Template  string `json:"template,omitempty" jsonschema:"Of the container to create. Default: the server's."`
	Network   string `json:"network,omitempty" jsonschema:"Of the container to create: disabled, open, or hosts such as pypi.org,files.pythonhosted.org."`
	Memory    string `json:"memory_limit,omitempty" jsonschema:"Of the container to create: 1g, 4g, 16g or 64g."`
}

type manageOutput struct {
	Containers []containerInfo `json:"containers,omitempty"`
	Snapshot   string          `json:"snapshot,omitempty" jsonschema:"Id of the new snapshot."`
	Deleted    string          `json:"deleted,omitempty" jsonschema:"Id of the deleted container."`
	More       bool            `json:"more,omitempty"`
}

type containerInfo struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	MemoryLimit string `json:"memory_limit"`
	Network     string `json:"network"`
	CreatedAt   string `json:"created_at"`
	Current     bool   `json:"current,omitempty" jsonschema:"It is the container of this connection."`

	Commands []string `json:"commands,omitempty" jsonschema:"Ids of its running commands."`
}

func manage(ctx context.Context, c *call, in manageInput) ([]sdk.Content, manageOutput, error) {
	for at, s := range map[string]string{"name": in.Name, "container": in.Container, "snapshot": in.Snapshot,
		"template": in.Template} {
		if err := rule.Text(0, 256)(at, s); err != nil {
			return nil, manageOutput{}, err
		}
	}
	var out manageOutput
	var err error
	switch in.Action {
	case "list":
		out, err = c.list(ctx)
	case "create":
		out, err = c.create(ctx, in, "")
	case "restore":
		if in.Snapshot == "" {
			return nil, out, berth.Invalid("snapshot", "Give the id of the snapshot in 'snapshot'.")
		}
		out, err = c.create(ctx, in, berth.SnapshotID(in.Snapshot))
	case "snapshot", "fork":
		out, err = c.copy(ctx, in)
	case "delete":
		out, err = c.delete(ctx, in.Container)
	default:
		err = berth.Invalid("action",
			"Invalid 'action'. Supported values are: 'list', 'create', 'snapshot', 'fork', 'restore' and 'delete'.")
	}
	if err != nil {
		return nil, out, err
	}
	return text(out.text()), out, nil
}

// text returns the output as the model reads it.
func (o manageOutput) text() string {
	var b strings.Builder
	for _, c := range o.Containers {
		fmt.Fprintf(&b, "%s %q memory %s, network %s", c.ID, c.Name, c.MemoryLimit, c.Network)
		if c.Current {
			b.WriteString(", of this connection")
		}
		if len(c.Commands) > 0 {
			fmt.Fprintf(&b, ", runs %s", strings.Join(c.Commands, ", "))
		}
		b.WriteByte('\n')
	}
	switch {
	case o.Snapshot != "":
		fmt.Fprintf(&b, "Saved as %s.", o.Snapshot)
	case o.Deleted != "":
		fmt.Fprintf(&b, "Deleted %s.", o.Deleted)
	case len(o.Containers) == 0:
		b.WriteString("[no running containers]")
	}
	return b.String()
}

// info describes a container.
func (c *call) info(made *berth.Container) containerInfo {
	out := containerInfo{ID: string(made.ID), Name: made.Name, MemoryLimit: made.MemoryLimit,
		Network:   made.NetworkPolicy.Type,
		CreatedAt: time.Unix(made.CreatedAt, 0).UTC().Format(time.RFC3339),
		Current:   c.session != nil && c.session.Current() == made.ID,
		Commands:  c.door.Commands.List(c.caller.Project, made.ID)}
	if len(made.NetworkPolicy.AllowedDomains) > 0 {
		out.Network = strings.Join(made.NetworkPolicy.AllowedDomains, ",")
	}
	return out
}

// list returns the running containers of the project.
func (c *call) list(ctx context.Context) (manageOutput, error) {
	const most = 100
	out := manageOutput{Containers: []containerInfo{}}
	page := exchange.Page{Limit: most}
	for {
		all, more, err := c.door.Containers.List(ctx, c.caller.Project, "", page)
		if err != nil {
			return out, err
		}
		for _, made := range all {
			page.After = string(made.ID)
			if made.Status != berth.ContainerRunning {
				continue
			}
			if len(out.Containers) == most {
				out.More = true
				return out, nil
			}
			out.Containers = append(out.Containers, c.info(made))
		}
		if !more {
			return out, nil
		}
	}
}

// create creates a container, which does not end with the session.
func (c *call) create(ctx context.Context, in manageInput, from berth.SnapshotID) (manageOutput, error) {
	req := container.CreateRequest{Name: in.Name, UniqueName: in.Name != "", MemoryLimit: in.Memory,
		NetworkPolicy: networkOf(in.Network)}
	if req.Name == "" {
		req.Name = "mcp"
	}
	req.Source.Template, req.Source.SnapshotID = in.Template, from
	made, err := c.door.Containers.Create(ctx, c.caller, req)
	if err != nil {
		return manageOutput{}, err
	}
	return manageOutput{Containers: []containerInfo{c.info(made)}}, nil
}

// copy makes a snapshot or a fork of a container.
func (c *call) copy(ctx context.Context, in manageInput) (manageOutput, error) {
	id, err := c.container(ctx, in.Container)
	if err != nil {
		return manageOutput{}, err
	}
	req := container.SnapshotRequest{Name: in.Name}
	if in.Action == "snapshot" {
		kept, err := c.door.Containers.Snapshots().Take(ctx, c.caller.Project, id, req)
		if err != nil {
			return manageOutput{}, err
		}
		return manageOutput{Snapshot: string(kept.ID)}, nil
	}
	made, err := c.door.Containers.Fork(ctx, c.caller, id, container.ForkRequest{SnapshotRequest: req,
		UniqueName: in.Name != ""})
	if err != nil {
		return manageOutput{}, err
	}
	return manageOutput{Containers: []containerInfo{c.info(made)}}, nil
}

// delete deletes a container.
func (c *call) delete(ctx context.Context, name string) (manageOutput, error) {
	if name == "" {
		return manageOutput{}, berth.Invalid("container", "Give the name or the id of the container in 'container'.")
	}
	id, err := c.door.Sessions.Existing(ctx, c.caller.Project, name)
	if err == nil && id == "" {
		err = berth.NotFound("Container", rule.Clip(name))
	}
	if err == nil {
		err = c.door.Remove(ctx, c.caller.Project, id)
	}
	return manageOutput{Deleted: string(id)}, err
}
