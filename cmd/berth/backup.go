package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newBackup() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "backup DIRECTORY",
		Short: "Back up the state, also of a running server",
		Long: `Copy the state into a new directory, which berth restore restores. The server may run: the
copy includes everything that it acknowledged before the backup started. The database and
the files may be on this machine, in PostgreSQL and in a bucket: the copy has them all, in
one form, with checksums. DIRECTORY exists only when the copy is complete.
The copy excludes templates (STATE/images) and the sandboxes of running containers; see
` + berth.DocsURL + `backup.md.
A mounted volume is frozen while it is copied.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !state.HasDatabase(dir) {
				return noState(dir)
			}
			started := time.Now()
			m, err := state.Backup(cmd.Context(), dir, args[0], thisBuild().Version,
				backupProgress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			if m.Gone > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d files were deleted during the backup; it shows them as deleted\n",
					m.Gone)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s, in %.1fs. Templates are not in it: copy %s/images, or build them again.\n",
				counted(m.Files, "file"), size(m.Bytes), time.Since(started).Seconds(), dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "state", config.DefaultState(), "directory for all state")
	cmd.AddCommand(newBackupNow(), newBackupList(), newBackupVerify())
	return cmd
}

// backupProgress returns a function that prints the steps of a backup if standard error is a terminal.
func backupProgress(w io.Writer) func(string) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	start := time.Now()
	return func(what string) {
		fmt.Fprintf(w, "%6.1fs  %s\n", time.Since(start).Seconds(), what)
	}
}

func newRestore() *cobra.Command {
	var from fromFlags
	cmd := &cobra.Command{
		Use:   "restore [BACKUP]",
		Short: "Restore a backup to an empty state directory, database and bucket",
		Long: `Restore a backup to the state directory, and, if the configuration names them (store,
blobs), to a PostgreSQL database and a bucket, whatever the original server used. All of
them must be empty; nothing is ever replaced. Each file is verified by its checksum.

With --from, restore from a repository of berth backup now, with the templates. That needs
its key, the file backup.key of the original state directory.

If it is interrupted, run it again. No server starts in the directory before it is complete.`,
		Example: "  berth restore /backup/2026-11-22 --config berth.yaml\n" +
			"  berth restore --from s3://backups --key backup.key --at 2026-11-29T12:30:00Z",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			if (len(args) == 1) == (from.url != "") {
				return usageError{errors.New("name either the directory of a backup or --from")}
			}
			if from.url != "" {
				if !cmd.Flags().Changed("key") {
					return usageError{errors.New("--from needs --key, the file backup.key of the original state directory")}
				}
				return from.restore(cmd, c)
			}
			m, err := state.Restore(cmd.Context(), args[0], c.State, c.Store.URL, c.Blobs)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored the backup of %s: %d files, %d bytes\n",
				m.CreatedAt.Format("2006-01-02 15:04:05 MST"), m.Files, m.Bytes)
			return err
		},
	}
	configFlag(cmd)
	from.register(cmd, "")
	for _, s := range config.Settings {
		if s.Flag == "state" || s.Flag == "store" {
			cmd.Flags().String(s.Flag, s.Default(), s.Usage)
		}
	}
	return cmd
}
