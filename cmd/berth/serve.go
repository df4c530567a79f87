package main

import (
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

func newServe() *cobra.Command {
	var listen, metricsListen, pprofListen, previewDomain, state, config, format string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API",
		Long: `Serve OpenAI's Responses API on --listen.

Without an API key, the server listens on loopback addresses only and serves every user
of this machine. After berth key create, every request needs a key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(format)
			if err != nil {
				return err
			}
			adoptLog(log)
			if err := checkAddress("--listen", listen); err != nil {
				return err
			}
			if err := checkAddress("--metrics-listen", metricsListen); metricsListen != "" && err != nil {
				return err
			}
			if err := checkAddress("--pprof-listen", pprofListen); pprofListen != "" && err != nil {
				return err
			}
			c, err := server.LoadConfig(config)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("preview-domain") {
				if err := c.SetPreviewDomain(previewDomain); err != nil {
					return err
				}
			}
			ctx, stop := server.OnHangup(cmd.Context(), log)
			defer stop()
			return server.Run(ctx, server.Options{State: state, Config: c, Version: version, Listen: listen, MetricsListen: metricsListen, PprofListen: pprofListen, Log: log})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address to serve on")
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "address for Prometheus to scrape /metrics: all projects, without a key")
	cmd.Flags().StringVar(&pprofListen, "pprof-listen", "", "loopback address of Go profiles at /debug/pprof/")
	cmd.Flags().StringVar(&previewDomain, "preview-domain", "", "domain that gives container ports host names, PORT-CONTAINER.DOMAIN, such as localhost or preview.example.com")
	cmd.Flags().StringVar(&state, "state", server.DefaultState(), "directory for all state")
	cmd.Flags().StringVar(&config, "config", "", "configuration file (YAML; see docs/configuration.md)")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	return cmd
}

// checkAddress returns an error unless a flag's value is a valid address to listen on.
func checkAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return nil
	}
	example := "127.0.0.1:8080"
	if _, err := strconv.ParseUint(address, 10, 16); err == nil {
		example = "127.0.0.1:" + address
	}
	return fmt.Errorf("%s: %q is not an address; write HOST:PORT, such as %s", flag, address, example)
}

// adoptLog sends messages of the standard logger to the server's log at debug level. net/http logs
// text that a sandbox sends, as often as the sandbox sends it.
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
