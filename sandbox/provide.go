package sandbox

import (
	"context"

	"github.com/berth-run/berth"
)

// autoName is the name of containers that a shell tool asked for.
const autoName = "container_auto"

// Provide returns the container for a shell tool's environment, with its files
// put in: the one that it refers to, or for container_auto the last one of the
// response's chain if that still runs, else a new one.
func (k *Keeper) Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment, last berth.ContainerID) (berth.ContainerID, error) {
	p := caller.Project
	if env.Type == berth.EnvironmentReference {
		if err := k.reserve(ctx, p, env.ContainerID); err != nil {
			return "", err
		}
		return env.ContainerID, nil
	}
	req := CreateRequest{Name: autoName, MemoryLimit: env.MemoryLimit, NetworkPolicy: env.NetworkPolicy, FileIDs: env.FileIDs}
	if last != "" {
		if _, err := k.newContainer(ctx, p, req); err != nil {
			return "", err
		}
		err := k.reserve(ctx, p, last)
		s := k.lookup(p, last)
		if err == nil && (s == nil || !s.samePolicy(env.NetworkPolicy)) {
			last = "" // it reaches more, or less, than is asked for
		}
		if err == nil && last != "" {
			err = k.AddFiles(ctx, p, last, env.FileIDs)
		}
		if err == nil && last != "" {
			return last, nil
		}
		if s := k.lookup(p, last); s != nil && s.life.Err() == nil {
			return "", err
		}
	}
	c, err := k.Create(ctx, caller, req)
	if err != nil {
		return "", err
	}
	return c.ID, nil
}

// reserve counts as a use of a container, which must not have ended.
func (k *Keeper) reserve(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	s, err := k.find(ctx, p, id)
	if err != nil {
		return err
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	s.release(k.now())
	return nil
}
