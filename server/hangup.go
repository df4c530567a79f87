package server

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// OnHangup returns a context that ends when the terminal of the server is closed. Without a
// terminal, SIGHUP conventionally reloads the configuration. This server reads it only at start,
// so it logs a warning. If SIGHUP is ignored, as under nohup, it stays ignored.
func OnHangup(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	terminal := false
	if tty, err := os.Open("/dev/tty"); err == nil { // must be tested before the hangup
		terminal = true
		tty.Close()
	}
	hangups := make(chan os.Signal, 1)
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
			log.Warn("SIGHUP does not reload the configuration; restart the server to reload it")
		}
	}()
	return ctx, cancel
}
