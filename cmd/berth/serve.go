package main

import (
	stdlog "log"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/server/config"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API",
		Long: `Serve OpenAI's Responses API on --listen.

Without an API key, the server listens on loopback addresses only and serves every user
of this machine. After berth key create, every request needs a key.

Each flag can also be set by an environment variable, such as BERTH_LISTEN, and by a key
of the file of --config (BERTH_CONFIG). A flag wins over a variable, a variable over the
file; berth config show prints the result.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadVerified(cmd)
			if err != nil {
				return err
			}
			log, level := newLogger(c.Log)
			adoptLog(log)
			ctx, reloads, stop := server.OnHangup(cmd.Context(), log)
			defer stop()
			return server.Run(ctx, server.Options{State: c.State, Config: c, Build: thisBuild(), Log: log, Level: level,
				Reloads: reloads, Load: func() (*config.Config, error) { return loadVerified(cmd) }})
		},
	}
	serveFlags(cmd)
	return cmd
}

// adoptLog sends messages of the standard logger to the server's log at debug level. net/http logs
// text that a sandbox sends, as often as the sandbox sends it.
func adoptLog(log *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
}

// newLogger returns the log of a server, on standard error, and its level.
func newLogger(c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(c.Threshold())
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(&filter{w: os.Stderr, json: true}, options)), level
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), level
}
