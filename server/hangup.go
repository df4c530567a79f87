package server

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// OnHangup returns a context that ends in order when the terminal of the server is closed.
// Without a terminal, SIGHUP is what daemons are sent to reload their configuration, which
// this server reads at its start only: it says so and serves on. Where SIGHUP is ignored,
// as under nohup, it stays so.
func OnHangup(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	terminal := false
	if tty, err := os.Open("/dev/tty"); err == nil { // after the hangup there is none
		terminal = true
		tty.Close()
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return // still caught: the stop is to be in order
			case <-hangups:
			}
			if terminal {
				log.Info("the terminal was closed")
				cancel()
				return
			}
			log.Warn("SIGHUP does not reload the configuration; restart the server for that")
		}
	}()
	return ctx, cancel
}
