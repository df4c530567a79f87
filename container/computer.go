package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// admitSubject returns a caller whose end user, if it has one, may have a new container.
func (o *Options) admitSubject(ctx context.Context, caller berth.Caller) (berth.Caller, error) {
	if caller.Subject == nil || o.Subjects == nil {
		return caller, nil
	}
	return o.Subjects(ctx, caller)
}

// provideComputer returns the container of the chat or the user for which a caller acts: the running one with the
// computer's name, or a new one, which continues from the snapshot that the last one left. The name is unique, so
// that concurrent first requests get one container.
func (pr *Provider) provideComputer(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment,
	req CreateRequest) (berth.ContainerID, error) {
	p, subject := caller.Project, caller.Subject
	req.Name, req.UniqueName, req.Source.OnLost = subject.Computer, true, berth.OnLostNew
	if req.Source.OnExpiry == "" && pr.opts.Snapshots != nil {
		req.Source.OnExpiry = berth.OnExpirySnapshot
	}
	if subject.IdleMinutes > 0 {
		req.ExpiresAfter = &berth.ExpiresAfter{Anchor: "last_active_at", Minutes: subject.IdleMinutes}
	}
	for {
		c, err := pr.newest(ctx, p, subject.Computer)
		if err != nil {
			return "", err
		}
		next := req
		if c != nil && c.Berth.EndUser != subject.EndUser { // a client gave a container of its own the name
			if c.Status == berth.ContainerRunning {
				return "", berth.Errorf(berth.CodeConflict, "The name of the container of end user %s is taken.",
					subject.EndUser)
			}
			c = nil
		}
		ended := c != nil
		if c != nil && c.Status == berth.ContainerRunning {
			var reused bool
			if reused, ended, err = pr.reuse(ctx, p, env, c.ID, &next); err != nil {
				return "", err
			}
			if reused {
				return c.ID, nil
			}
			if !ended { // with another network policy; the name is taken
				next.Name, next.UniqueName = autoName, false
				return pr.provideNew(ctx, caller, env, next)
			}
		}
		if ended && req.Source.Template == "" && req.Source.SnapshotID == "" {
			if next, err = pr.continued(ctx, p, next, c.ID); err != nil {
				return "", err
			}
		}
		pl, err := pr.planner.plan(ctx, p, next)
		if err != nil {
			return "", err
		}
		_, err = pr.creator.create(ctx, caller, pl)
		if err == nil {
			return pl.body.ID, nil
		}
		if !errors.Is(err, store.ErrExists) || ctx.Err() != nil {
			return "", err
		}
		// A concurrent request has created it.
	}
}

// newest returns the running container with a unique name, or the one that ended last, or nil.
func (pr *Provider) newest(ctx context.Context, p berth.ProjectID, name string) (*berth.Container, error) {
	list, _, err := pr.opts.Store.ListContainers(ctx, p, name, store.Page{Limit: 100})
	if err != nil {
		return nil, fmt.Errorf("find the container of an end user: %w", err)
	}
	var ended *berth.Container
	for _, c := range list {
		switch {
		case !c.Body.Berth.UniqueName:
		case c.Body.Status == berth.ContainerRunning:
			return c.Body, nil
		case ended == nil:
			ended = c.Body
		}
	}
	return ended, nil
}

// setEndUser sets the end user of a new container of a caller. One that starts from the content of a user's container
// belongs to this user, and nobody may have it who acts for another.
func setEndUser(body *berth.Container, caller berth.Caller) error {
	if caller.Subject == nil {
		return nil
	}
	if of := body.Berth.EndUser; of != "" && of != caller.Subject.EndUser {
		return berth.Errorf(berth.CodeNotFound, "The source of the container was not found.")
	}
	body.Berth.EndUser = caller.Subject.EndUser
	return nil
}

// checkEndUser returns an error for the client if a caller acts for another end user than the container's.
func (pr *Provider) checkEndUser(ctx context.Context, caller berth.Caller, id berth.ContainerID) error {
	if caller.Subject == nil || id == "" {
		return nil
	}
	var of berth.EndUserID
	if s := pr.index.lookup(caller.Project, id); s != nil {
		of = s.body.Berth.EndUser
	} else if rec, err := pr.opts.Store.GetContainer(ctx, caller.Project, id); err == nil {
		of = rec.Body.Berth.EndUser
	} else if !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read container: %w", err)
	}
	if of != "" && of != caller.Subject.EndUser {
		return berth.NotFound("Container", id)
	}
	return nil
}
