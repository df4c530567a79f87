package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/backup"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// fromFlags name a backup of a repository.
type fromFlags struct{ url, key, at string }

// register registers the flags. The key's default is that of the state directory.
func (f *fromFlags) register(cmd *cobra.Command, key string) {
	cmd.Flags().StringVar(&f.url, "from", "", "repository: an absolute path, or the URL of a bucket")
	cmd.Flags().StringVar(&f.key, "key", key, "file with the key of the repository")
	cmd.Flags().StringVar(&f.at, "at", "", "time of the backup, as 2026-11-29T12:30:00Z: the last one made by then (default now)")
}

// from returns the backup.
func (f *fromFlags) from() (from state.From, err error) {
	from = state.From{URL: f.url, At: time.Now()}
	if f.at != "" {
		if from.At, err = time.Parse(time.RFC3339, f.at); err != nil {
			return from, usageError{fmt.Errorf("--at: %q is not a time such as 2026-11-29T12:30:00Z", f.at)}
		}
	}
	text, err := os.ReadFile(f.key)
	if err != nil {
		return from, fmt.Errorf("read the key of the repository: %w", err)
	}
	from.Key, err = backup.ParseKey(string(text))
	return from, err
}

func (f *fromFlags) restore(cmd *cobra.Command, c *config.Config) error {
	from, err := f.from()
	if err != nil {
		return err
	}
	m, err := state.RestoreFrom(cmd.Context(), from, c.State, c.Store.URL, c.Blobs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored the backup of %s: %d files, %d bytes\n",
		m.CreatedAt.Format(time.RFC3339), m.Files, m.Bytes)
	return err
}

func newBackupNow() *cobra.Command {
	var dir string
	var how state.Repeated
	var every, verify time.Duration
	cmd := &cobra.Command{
		Use:   "now",
		Short: "Back up what changed to an encrypted repository",
		Long: `Back up the state, with templates, to a repository in a directory or a bucket. Only what
changed since the last backup is stored, encrypted with the key in STATE/backup.key, which
the first backup creates. Store a copy of that key elsewhere: without it nothing can be
restored. The server may run.

With --keep, older backups are removed: all of that time are retained, and then the last of
each hour, day and week as long as the other flags say.

With --every, it makes backups until it is ended, and with --verify also restores the last
one at that interval, to a temporary directory, and checks it.`,
		Example: "  berth backup now --to 's3://backups?region=eu-central-1' --every 1m --keep 24h --keep-hourly 7d --verify 1d",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if how.To == "" {
				return usageError{errors.New("--to is missing: where to back up to")}
			}
			if !state.HasDatabase(dir) {
				return noState(dir)
			}
			how.Version = thisBuild().Version
			if every == 0 {
				return backUpNow(cmd, dir, how)
			}
			return backUpAlways(cmd, dir, how, every, verify)
		},
	}
	cmd.Flags().StringVar(&dir, "state", config.DefaultState(), "directory for all state")
	cmd.Flags().StringVar(&how.To, "to", "", "repository: an absolute path, or the URL of a bucket")
	cmd.Flags().BoolVar(&how.Take, "take", false, "write in place of the server that wrote before, which must have ended")
	durationFlag(cmd, &how.Keep.All, "keep", "", 0, "retain all backups of this time")
	durationFlag(cmd, &how.Keep.Hourly, "keep-hourly", "", 0, "retain the last one of each hour of this time")
	durationFlag(cmd, &how.Keep.Daily, "keep-daily", "", 0, "retain the last one of each day of this time")
	durationFlag(cmd, &how.Keep.Weekly, "keep-weekly", "", 0, "retain the last one of each week of this time")
	durationFlag(cmd, &every, "every", "", 0, "make a backup at this interval")
	durationFlag(cmd, &verify, "verify", "", 0, "with --every: restore the last backup at this interval, and check it")
	return cmd
}

func backUpNow(cmd *cobra.Command, dir string, how state.Repeated) error {
	started := time.Now()
	m, pruned, err := state.BackupTo(cmd.Context(), dir, how)
	if m == nil {
		return err
	}
	if _, werr := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", m.Name); werr != nil {
		return errors.Join(err, werr)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s; stored %s in %.1fs; removed %s\n", counted(m.Files, "file"), size(m.Bytes),
		size(m.Stored), time.Since(started).Seconds(), counted(len(pruned.Names), "backup"))
	return err
}

// backUpAlways makes and verifies backups until its context ends. What fails is tried again at the next interval.
func backUpAlways(cmd *cobra.Command, dir string, how state.Repeated, every, verify time.Duration) error {
	verified := time.Now()
	for {
		next := time.Now().Add(every)
		err := backUpNow(cmd, dir, how)
		how.Take = false
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "error: the backup failed, and is tried again: %v\n", err)
		} else if verify > 0 && time.Since(verified) >= verify {
			verified = time.Now()
			f := fromFlags{url: how.To, key: filepath.Join(dir, "backup.key")}
			if err := f.verify(cmd, ""); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "error: the last backup cannot be restored: %v\n", err)
			}
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(time.Until(next)):
		}
	}
}

func newBackupList() *cobra.Command {
	var f fromFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the backups of a repository",
		Example: "  berth backup list --from /mnt/backups",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := f.named()
			if err != nil {
				return err
			}
			r, err := state.OpenRepository(cmd.Context(), from.URL, from.Key, false)
			if err != nil {
				return err
			}
			names, err := r.List(cmd.Context())
			if err != nil {
				return err
			}
			return printBackups(cmd, r, names)
		},
	}
	f.register(cmd, filepath.Join(config.DefaultState(), "backup.key"))
	return cmd
}

// named is from with a repository that must be named.
func (f *fromFlags) named() (state.From, error) {
	if f.url == "" {
		return state.From{}, usageError{errors.New("--from is missing: the repository")}
	}
	return f.from()
}

func printBackups(cmd *cobra.Command, r *backup.Repository, names []string) error {
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for i, name := range names {
		if i == 0 {
			_, _ = io.WriteString(out, "TIME\tFILES\tSIZE\tSTORED\tHOST\n") // Flush returns its error
		}
		m, err := r.Load(cmd.Context(), name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%d\t%s\t%s\t%s\n", m.CreatedAt.Format(time.RFC3339), m.Files, size(m.Bytes),
			size(m.Stored), m.Host)
	}
	return out.Flush()
}

func newBackupVerify() *cobra.Command {
	var f fromFlags
	var in string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Restore a backup of a repository to a temporary directory and check it",
		Long: `Restore a backup to a temporary directory, open its database with its keys, verify its audit
record, and remove it. It needs space for two copies of the backup.`,
		Example: "  berth backup verify --from /mnt/backups --in /var/tmp",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.url == "" {
				return usageError{errors.New("--from is missing: the repository")}
			}
			return f.verify(cmd, in)
		},
	}
	f.register(cmd, filepath.Join(config.DefaultState(), "backup.key"))
	cmd.Flags().StringVar(&in, "in", "", "directory for the temporary one (default: that of the system)")
	return cmd
}

func (f *fromFlags) verify(cmd *cobra.Command, in string) error {
	from, err := f.from()
	if err != nil {
		return err
	}
	m, err := state.VerifyBackup(cmd.Context(), from, in)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the backup of %s can be restored: %d files, %d bytes\n",
		m.CreatedAt.Format(time.RFC3339), m.Files, m.Bytes)
	return err
}
