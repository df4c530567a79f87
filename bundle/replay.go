package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// A Replay is the result of a repeated chain.
type Replay struct {
	Object     string           `json:"object"`          // "response.replay"
	Model      string           `json:"model,omitempty"` // that was called; empty for the recorded turns
	Responses  []ReplayResponse `json:"responses"`
	Divergence *Divergence      `json:"divergence"` // the first, or null
}

// A ReplayResponse is one response, as recorded and as replayed.
type ReplayResponse struct {
	ID       berth.ResponseID `json:"id"`
	Recorded []string         `json:"recorded"` // at least one line for each item
	Replayed []string         `json:"replayed"`
	Error    string           `json:"error,omitempty"` // why Replayed is incomplete
}

// A Divergence is the first difference between the recorded and the replayed output.
type Divergence struct {
	ResponseID berth.ResponseID `json:"response_id"`
	Item       int              `json:"item"`     // index of the line in the response
	Recorded   string           `json:"recorded"` // empty after the last line
	Replayed   string           `json:"replayed"`
}

// Replay repeats the chain that ends with a response, each response in its original
// context. Commands run in one new container, with the template or snapshot of the first
// container and with the files that users had put into it, if it still exists. With an
// empty model the recorded turns are replayed; otherwise that model is called. Replay
// stores nothing.
func (c *Service) Replay(ctx context.Context, caller berth.Caller, id berth.ResponseID, model string) (*Replay, error) {
	p := caller.Project
	links, err := c.opts.Responses.Chain(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Response", id)
	}
	if err != nil {
		return nil, err
	}
	place, err := c.newPlace(ctx, caller, links)
	if err != nil {
		return nil, err
	}
	defer place.remove(context.WithoutCancel(ctx))
	out := &Replay{Object: "response.replay", Model: model}
	for _, l := range links {
		rec, err := c.opts.Responses.GetResponse(ctx, p, l.ID)
		if err != nil {
			return nil, err
		}
		if !rec.Body.Status.Final() {
			return nil, &berth.Error{Code: berth.CodeConflict,
				Message: fmt.Sprintf("Response with id '%s' is still in progress.", l.ID)}
		}
		r, err := c.again(ctx, caller, rec, place, model)
		if err != nil {
			return nil, err
		}
		out.Responses = append(out.Responses, *r)
		if out.Divergence == nil {
			out.Divergence = r.diverges()
		}
	}
	return out, nil
}

// again repeats one response.
func (c *Service) again(ctx context.Context, caller berth.Caller, rec *store.Response, place *place,
	model string) (*ReplayResponse, error) {
	before, err := c.opts.Engine.Before(ctx, rec)
	if err != nil {
		return nil, err
	}
	req := *rec.Request
	no := false
	req.Input, req.Store, req.Background, req.Stream = slices.Concat(before, rec.Input), &no, false, false
	req.Conversation, req.ContextManagement = nil, nil
	if req.PreviousResponseID = ""; rec.Body.PreviousResponseID != nil {
		req.PreviousResponseID = *rec.Body.PreviousResponseID
	}
	if req.Tools, err = place.tools(c.opts.Engine.Tools, req.Tools); err != nil {
		return nil, err
	}
	var options []engine.Option
	if model == "" {
		options = append(options, engine.Through(recite(c.opts.Engine.Tools, rec.Body.Output)))
	} else {
		req.Model = model
	}
	out := &ReplayResponse{ID: rec.Body.ID, Recorded: outline(c.opts.Engine.Tools, rec.Body.Output),
		Replayed: []string{}}
	ctx, end := context.WithCancel(ctx)
	defer end() // which removes the response, because it is not stored
	made, err := c.opts.Engine.Create(ctx, caller, &req, options...)
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Code == berth.CodeInvalid {
		out.Error = e.Message
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for ev, err := range c.opts.Journal.Follow(ctx, caller.Project, made.ID, -1) {
		if err != nil {
			return nil, err
		}
		if !ev.Type.Final() {
			continue
		}
		var last berth.Event
		if err := json.Unmarshal(ev.Data, &last); err != nil {
			return nil, fmt.Errorf("decode event: %w", err)
		}
		out.Replayed = outline(c.opts.Engine.Tools, last.Response.Output)
		if e := last.Response.Error; e != nil {
			out.Error = e.Message
		}
	}
	return out, nil
}

// diverges returns the first difference, or nil.
func (r *ReplayResponse) diverges() *Divergence {
	at := func(lines []string, i int) string {
		if i < len(lines) {
			return lines[i]
		}
		return ""
	}
	for i := range max(len(r.Recorded), len(r.Replayed)) {
		if was, is := at(r.Recorded, i), at(r.Replayed, i); was != is {
			return &Divergence{ResponseID: r.ID, Item: i, Recorded: was, Replayed: is}
		}
	}
	return nil
}

// outline returns items as lines, without what differs in every run: identifiers,
// compactions, and reasoning, which is meaningless without its model.
func outline(tools *tool.Registry, items []berth.Item) []string {
	lines := []string{}
	for _, it := range items {
		switch {
		case it.Type() == berth.ItemReasoning, it.Type() == berth.ItemCompaction:
		case it.Type() == berth.ItemMessage:
			var m berth.Message
			_ = it.Decode(&m)
			var text strings.Builder
			for _, c := range m.Content {
				text.WriteString(c.Text + c.Refusal)
			}
			lines = append(lines, "message: "+text.String())
		case it.Type() == berth.ItemApprovalRequest:
			var r berth.ApprovalRequest
			_ = it.Decode(&r)
			lines = append(lines, "mcp_approval_request: "+r.Arguments)
		default:
			lines = append(lines, tools.Outline(it)...)
		}
	}
	return lines
}

// A place is the container of a replay's commands.
type place struct {
	containers *container.Service
	project    berth.ProjectID
	id         berth.ContainerID // empty if the chain had no container
}

// newPlace creates a container with the limits and the source of the chain's first.
func (c *Service) newPlace(ctx context.Context, caller berth.Caller, links []store.Link) (*place, error) {
	p := &place{containers: c.opts.ContainerService, project: caller.Project}
	i := slices.IndexFunc(links, func(l store.Link) bool { return l.Container != "" })
	if i < 0 {
		return p, nil
	}
	old := links[i].Container
	req := container.CreateRequest{Name: "replay"}
	rec, err := c.opts.Containers.GetContainer(ctx, caller.Project, old)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		b := rec.Body
		req.MemoryLimit, req.NetworkPolicy = b.MemoryLimit, &b.NetworkPolicy
		if b.Berth.FromSnapshot != "" {
			req.Source.SnapshotID = b.Berth.FromSnapshot
		} else {
			req.Source.Template = b.Berth.Template
		}
	}
	if rec != nil {
		req.Skills = references(rec.Body.Berth.Skills)
	}
	made, err := c.opts.ContainerService.Create(ctx, caller, req)
	for err != nil && dropMissing(&req, err) {
		made, err = c.opts.ContainerService.Create(ctx, caller, req)
	}
	if err != nil {
		return nil, err
	}
	p.id = made.ID
	if err := p.copyFrom(ctx, old); err != nil {
		p.remove(context.WithoutCancel(ctx))
		return nil, err
	}
	return p, nil
}

// references returns references to the stored skills in a container.
func references(list []berth.ContainerSkill) []berth.SkillParam {
	var refs []berth.SkillParam
	for _, s := range list {
		if s.SkillID != "" {
			refs = append(refs, berth.SkillParam{Type: berth.SkillReference, SkillID: s.SkillID, Version: s.Version})
		}
	}
	return refs
}

// dropMissing removes the skill that err says was deleted, and reports whether there was one.
func dropMissing(req *container.CreateRequest, err error) bool {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code != berth.CodeNotFound {
		return false
	}
	var i int
	if _, err := fmt.Sscanf(e.Param, "skills[%d]", &i); err != nil || i < 0 || i >= len(req.Skills) {
		return false
	}
	req.Skills = slices.Delete(req.Skills, i, i+1)
	return true
}

// copyFrom copies the files that users had put into the old container. It does nothing if
// that container has ended.
func (p *place) copyFrom(ctx context.Context, old berth.ContainerID) error {
	files, _, err := p.containers.Files().List(ctx, p.project, old, store.Page{Limit: 1000, Ascending: true})
	if err != nil {
		return nil
	}
	for _, f := range files {
		if f.Source != "user" {
			continue
		}
		content, _, err := p.containers.Files().Open(ctx, p.project, old, f.ID)
		if err != nil {
			return err
		}
		_, err = p.containers.Files().Put(ctx, p.project, p.id, strings.TrimPrefix(f.Path, berth.WorkDir+"/"), content)
		content.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// tools returns tools with their calls in this place.
func (p *place) tools(kinds *tool.Registry, tools []berth.Tool) ([]berth.Tool, error) {
	out := slices.Clone(tools)
	if p.id == "" {
		return out, nil
	}
	for i, t := range tools {
		var err error
		if out[i], err = kinds.InContainer(t, p.id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *place) remove(ctx context.Context) {
	if p.id != "" {
		_ = p.containers.Delete(ctx, p.project, p.id)
	}
}
