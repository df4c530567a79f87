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
// reloads the configuration. Under nohup, which ignores SIGHUP, the end of the terminal does not stop the
// server, so there each SIGHUP reloads.
func OnHangup(ctx context.Context, log *slog.Logger) (_ context.Context, reloads <-chan struct{},
	stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	terminal := false
	if signal.Ignored(syscall.SIGHUP) {
		log.Debug("SIGHUP reloads the configuration: the server was started under nohup")
	} else if tty, err := os.Open("/dev/tty"); err == nil { // must be tested before the hangup
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
