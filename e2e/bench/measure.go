package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"sync"
	"time"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/sandbox"
)

// atOnce does things 0 to n-1, at most width of them at a time.
func atOnce(width, n int, f func(i int) error) series {
	var s series
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, width)
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			took, err := timed(func() error { return f(i) })
			mu.Lock()
			s.took(took, err)
			mu.Unlock()
			<-turns
		})
	}
	wg.Wait()
	return s
}

// inTurn does two things n times each, in turn, so that both see the same machine.
func inTurn(ctx context.Context, n int, f, g func() error) (a, b series) {
	for range n {
		if ctx.Err() != nil {
			break
		}
		a.took(timed(f))
		b.took(timed(g))
	}
	return a, b
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// host runs a program of this machine.
func host(ctx context.Context, path string, args ...string) error {
	return exec.CommandContext(ctx, path, args...).Run()
}

// stopped stops a server and joins its error to err.
func stopped(s *server, err *error) { *err = errors.Join(*err, s.stop()) }

// dialer returns how a guest is reached by its driver.
func dialer(d sandbox.Driver, id string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id) }
}

// rootfs returns the base template's root file system.
func (b *bench) rootfs() (string, error) {
	images, err := image.Open(b.images, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	base, err := images.Get("base")
	if err != nil {
		return "", err
	}
	return base.Rootfs, nil
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
