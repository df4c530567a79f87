package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// startTimeout bounds Start if ctx has no deadline.
const startTimeout = time.Minute

// Start starts the container. The guest listens a few milliseconds later; Dial waits for it.
func (d *Driver) Start(ctx context.Context, id string) error {
	name, state, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if state.Status != container.StateCreated {
		return fmt.Errorf("docker: start %s: it was started before and is %s", id, state.Status)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := d.client.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("docker: start %s: %w", id, err)
	}
	return nil
}

// find returns a sandbox's container and its state, or sandbox.ErrNotFound.
func (d *Driver) find(ctx context.Context, id string) (string, *container.State, error) {
	name, err := d.container(id)
	if err != nil {
		return "", nil, fmt.Errorf("docker: %w", err)
	}
	c, err := d.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if err != nil {
		return "", nil, d.wrap("inspect", id, err)
	}
	if c.Container.State == nil {
		return "", nil, fmt.Errorf("docker: inspect %s: the engine does not report its state", id)
	}
	return name, c.Container.State, nil
}

// wrap adds the operation and the sandbox to err.
func (d *Driver) wrap(what, id string, err error) error {
	if errdefs.IsNotFound(err) {
		err = errors.Join(sandbox.ErrNotFound, err)
	}
	return fmt.Errorf("docker: %s %s: %w", what, id, err)
}

// Dial starts a relay in the sandbox, which connects to the guest's socket and carries the
// connection over its standard streams. The relay ends with the connection, even if this
// process dies.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	name, err := d.container(id)
	if err != nil {
		return nil, fmt.Errorf("docker: dial: %w", err)
	}
	conn, err := d.dial(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w%s", d.wrap("dial", id, err), d.lastWords(ctx, name))
	}
	return conn, nil
}

func (d *Driver) dial(ctx context.Context, name string) (net.Conn, error) {
	relay, err := d.client.ExecCreate(ctx, name, client.ExecCreateOptions{
		User: "0:0", WorkingDir: "/", Env: []string{"GOMAXPROCS=1"},
		Cmd:         []string{guestPath, "dial", guestSocket},
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("create relay: %w", err)
	}
	attached, err := d.client.ExecAttach(ctx, relay.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, fmt.Errorf("attach to relay: %w", err)
	}
	conn := &stream{Conn: attached.Conn, in: attached.Reader}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = conn.greeting()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// wordsLimit bounds the quoted part of a sandbox's log, in bytes.
const wordsLimit = 2048

// lastWords returns the end of a dead sandbox's log as a suffix of an error, or "" if the
// sandbox is alive. The sandbox may have written it.
func (d *Driver) lastWords(ctx context.Context, name string) string {
	c, err := d.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if err != nil || c.Container.State == nil || c.Container.State.Status != container.StateExited {
		return ""
	}
	logs, err := d.client.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true,
		Tail: "5"})
	if err != nil {
		return ""
	}
	defer logs.Close()
	var b strings.Builder
	_, _ = stdcopy.StdCopy(&b, &b, io.LimitReader(logs, wordsLimit))
	words := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(b.String(), " "))), " ")
	if words == "" {
		return ""
	}
	return "; its log: " + words
}
