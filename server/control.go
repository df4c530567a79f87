package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/berth-run/berth/server/state"
)

// serveControl serves requests of commands until ctx ends.
func (s *Server) serveControl(b *base) error {
	l, err := state.ListenControl(b.State)
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			serving.Go(func() { b.control(c) })
		}
	})
	s.later(func(context.Context) error {
		err := errors.Join(l.Close(), os.Remove(filepath.Join(b.State, state.ControlFile)))
		serving.Wait()
		return err
	})
	return nil
}

// control serves a request.
func (b *base) control(c net.Conn) {
	defer c.Close()
	request, err := bufio.NewReader(io.LimitReader(c, 64)).ReadString('\n')
	if err != nil {
		return
	}
	err = fmt.Errorf("this server does not know the request %q", strings.TrimSpace(request))
	if strings.TrimSpace(request) == state.RotateRequest {
		err = b.rotateSealKey()
	}
	answer := ""
	if err != nil {
		answer = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	fmt.Fprintln(c, answer)
}

// rotateSealKey rotates the key of a server that runs.
func (b *base) rotateSealKey() error {
	b.rotating.Lock()
	defer b.rotating.Unlock()
	if b.Config.Cluster.Listen != "" {
		return state.ErrClustered
	}
	r := &state.KeyRotation{State: b.State, Database: b.disk, Lock: b.lock, Keys: b.keys, Audit: b.audit}
	if err := r.Run(context.Background(), nil); err != nil {
		b.Log.Error("failed to rotate the seal key", "err", err)
		return err
	}
	b.Log.Info("rotated the seal key")
	return nil
}
