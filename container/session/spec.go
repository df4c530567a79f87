package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A Spec describes the container of a session.
type Spec struct {
	// Name is the name or the id of the container. Without one, the container is new.
	Name        string
	Template    string               // default: the server's
	Network     *berth.NetworkPolicy // default: no network
	MemoryLimit string               // default 1g
	IdleMinutes int                  // after which it expires; default: the server's
	Ends        bool                 // a named container leaves no snapshot
}

// Find returns the container of a spec. A name is that of the newest running container of the project with it. If there
// is none, Find creates one, from the snapshot that the last one left, if any. An id must be that of a running
// container.
func (s *Service) Find(ctx context.Context, caller berth.Caller, spec Spec) (berth.ContainerID, error) {
	if strings.HasPrefix(spec.Name, berth.PrefixContainer) {
		return s.byID(ctx, caller.Project, berth.ContainerID(spec.Name))
	}
	req := container.CreateRequest{Name: spec.Name, MemoryLimit: spec.MemoryLimit, NetworkPolicy: spec.Network}
	req.Source.Template = spec.Template
	if spec.IdleMinutes > 0 {
		req.ExpiresAfter = &berth.ExpiresAfter{Anchor: "last_active_at", Minutes: spec.IdleMinutes}
	}
	if spec.Name == "" {
		req.Name = "mcp"
		return s.create(ctx, caller, req)
	}
	req.UniqueName = true
	if s.Snapshots && !spec.Ends {
		req.Source.OnExpiry = berth.OnExpirySnapshot
	}
	id, left, err := s.byName(ctx, caller.Project, spec.Name)
	if id != "" || err != nil {
		return id, err
	}
	if left != "" {
		req.Source.SnapshotID, req.Source.Template = left, ""
	}
	made, err := s.create(ctx, caller, req)
	if berth.ErrorCode(err) == berth.CodeConflict { // another session has created it
		if id, _, again := s.byName(ctx, caller.Project, spec.Name); id != "" && again == nil {
			return id, nil
		}
	}
	return made, err
}

// Existing returns the running container with a name or an id, or "" if there is none.
func (s *Service) Existing(ctx context.Context, p berth.ProjectID, name string) (berth.ContainerID, error) {
	if !strings.HasPrefix(name, berth.PrefixContainer) {
		id, _, err := s.byName(ctx, p, name)
		return id, err
	}
	id, err := s.byID(ctx, p, berth.ContainerID(name))
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return "", nil
	}
	return id, err
}

func (s *Service) create(ctx context.Context, caller berth.Caller, req container.CreateRequest) (berth.ContainerID,
	error) {
	c, err := s.Containers.Create(ctx, caller, req)
	if err != nil {
		return "", err
	}
	return c.ID, nil
}

func (s *Service) byID(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (berth.ContainerID, error) {
	c, err := s.Containers.Get(ctx, p, id)
	if err == nil && c.Status != berth.ContainerRunning {
		err = berth.Errorf(berth.CodeNotFound, "Container with id '%s' has expired.", rule.Clip(string(id)))
	}
	return id, err
}

// byName returns the newest running container with a name, or the snapshot that the newest one has left.
func (s *Service) byName(ctx context.Context, p berth.ProjectID, name string) (id berth.ContainerID,
	left berth.SnapshotID, err error) {
	list, _, err := s.Containers.List(ctx, p, name, store.Page{Limit: 100})
	if err != nil {
		return "", "", fmt.Errorf("find container by name: %w", err)
	}
	for _, c := range list {
		if c.Status == berth.ContainerRunning {
			return c.ID, "", nil
		}
	}
	if len(list) > 0 {
		left = list[0].Berth.LastSnapshot
	}
	return "", left, nil
}
