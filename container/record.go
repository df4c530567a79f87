package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// container returns the row of a container. It returns an error for the client if there is no
// row.
func (o *Options) container(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*store.Container, error) {
	rec, err := o.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Container", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read container: %w", err)
	}
	return rec, nil
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// asUnavailable returns err if it is for the client, and otherwise an error for the client with
// the message.
func asUnavailable(err error, message string) error {
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	return &berth.Error{Code: berth.CodeUnavailable, Message: message, Err: err}
}

// errUnchanged aborts an update that would change nothing.
var errUnchanged = errors.New("unchanged")
