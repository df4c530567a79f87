package main

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newKeyRotateSeal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-seal",
		Short: "Replace the server's key, seal.key",
		Long: `Replace the server's key, with which everything stored is sealed. The keys of all rows
are sealed with a new key, and the former one opens nothing of it. A server that uses
--state serves meanwhile; only writes wait for a moment.

Former copies of seal.key are refused from then on: store the new one where you store
backups of keys, and make a new backup. Access tokens of E2B's API, signed URLs and
links to ports end: clients connect again.

Servers of a cluster must be stopped first. Run the command on one of them, copy its
seal.key to the others, and start them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(c.State)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			running, err := state.RotateSealKey(cmd.Context(), dir, c, log)
			if err != nil {
				return err
			}
			by := ""
			if running {
				by = " by the server"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "rotated%s; store a copy of %s elsewhere\n", by,
				filepath.Join(dir, "seal.key"))
			return nil
		},
	}
	cmd.Flags().String("state", config.DefaultState(), "directory for all state")
	configFlag(cmd)
	return cmd
}
