package main

import (
	"context"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/store/sqlite"
)

func newServe() *cobra.Command {
	var listen, metricsListen, previewDomain, state, config, format string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API",
		Long: `Serve OpenAI's Responses API on --listen.

Without an API key the server answers on loopback only, to anybody there. With
berth key create it asks every caller for one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(format)
			if err != nil {
				return err
			}
			adoptLog(log)
			c, err := loadConfig(config)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("preview-domain") {
				c.Preview.Domain = previewDomain
				if err := c.checkPreview(); err != nil {
					return err
				}
			}
			ctx, stop := onHangup(cmd.Context(), log)
			defer stop()
			return serve(ctx, listen, metricsListen, state, c, log)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address to serve on")
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "address to serve /metrics on, for Prometheus: figures of all projects, to anybody who reaches it")
	cmd.Flags().StringVar(&previewDomain, "preview-domain", "", "domain below which ports of containers have hosts of their own, PORT-CONTAINER.DOMAIN; such as localhost, or preview.example.com")
	cmd.Flags().StringVar(&state, "state", defaultState(), "directory for all state")
	cmd.Flags().StringVar(&config, "config", "", "configuration file (YAML; see docs/configuration.md)")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	return cmd
}

// adoptLog makes what packages say by themselves fine detail of the server's log. Of
// net/http it may be what a sandbox wrote, as often as that likes.
func adoptLog(log *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
}

func newLogger(format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(&filter{w: os.Stderr, json: true}, nil)), nil
	}
	return nil, fmt.Errorf("--log-format must be text or json, not %q", format)
}

func serve(ctx context.Context, listen, metricsListen, state string, c *Config, log *slog.Logger) error {
	state, err := filepath.Abs(state)
	if err != nil {
		return err
	}
	if _, err := openSpace(state, c, log); err != nil { // a full disk must not hold the start up
		return err
	}
	open, err := withoutKeys(ctx, state)
	if err != nil {
		return err
	}
	if open && !isLoopback(listen) {
		return fmt.Errorf("there is no API key yet, and %s can be reached from outside: run berth key create --state %s first", listen, state)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s, err := newServer(ctx, state, c, log)
	if err != nil {
		l.Close()
		if ctx.Err() != nil {
			return nil // stopped before it had begun
		}
		return err
	}
	if s.open && !isLoopback(listen) { // the last key was removed just now
		l.Close()
		s.Close(context.WithoutCancel(ctx))
		return fmt.Errorf("there is no API key any more, and %s can be reached from outside: run berth key create --state %s first", listen, state)
	}
	if s.open {
		log.Warn("NO API KEYS: everybody on this machine may use this server; berth key create makes one")
	}
	if metricsListen != "" {
		if err := s.serveMetrics(metricsListen); err != nil {
			l.Close()
			s.Close(context.WithoutCancel(ctx))
			return err
		}
	}
	log.Info("serving", "url", "http://"+l.Addr().String()+"/v1", "state", state, "driver", c.Driver, "version", version)
	return s.serve(ctx, l)
}

// withoutKeys reports whether the store has no key yet.
func withoutKeys(ctx context.Context, state string) (bool, error) {
	db, err := openStore(ctx, state, sqlite.Options{})
	if err != nil {
		return false, err
	}
	defer db.Close()
	keys, err := db.ListKeys(ctx)
	return len(keys) == 0, err
}

// isLoopback reports whether an address can be reached from this machine only.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
