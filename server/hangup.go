package server

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// OnHangup handles SIGHUP. It returns a context that ends when the terminal of the server is closed,
// and a channel that receives from SIGHUP to a server without a terminal, which conventionally
// reloads the configuration. If SIGHUP is ignored, as under nohup, it stays ignored.
func OnHangup(ctx context.Context, log *slog.Logger) (_ context.Context, reloads <-chan struct{}, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, nil, cancel
	}
	terminal := false
	if tty, err := os.Open("/dev/tty"); err == nil { // must be tested before the hangup
		terminal = true
		tty.Close()
	}
	hangups, requests := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return // SIGHUP stays caught: it must not interrupt the stop
			case <-hangups:
			}
			if terminal {
				log.Info("stopping because the terminal was closed")
				cancel()
				return
			}
			select {
			case requests <- struct{}{}:
			default: // one is waiting already
			}
		}
	}()
	return ctx, requests, cancel
}
