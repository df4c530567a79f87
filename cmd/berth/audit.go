package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

func newAudit() *cobra.Command {
	var dir, record string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print and verify the audit record",
		Long: `Print and verify the hash-chained, signed audit record. No server needs to run: the
command reads the record below --state, or a copy in --dir.`,
	}
	cmd.PersistentFlags().StringVar(&dir, "state", config.DefaultState(), "directory for all state")
	cmd.PersistentFlags().StringVar(&record, "dir", "", "directory of the record, instead of the one in --state")
	where := func() string {
		if record != "" {
			return record
		}
		return filepath.Join(dir, state.AuditDir)
	}
	cmd.AddCommand(newAuditLog(where), newAuditVerify(&dir, where), newAuditKey(where))
	return cmd
}

func newAuditLog(where func() string) *cobra.Command {
	var follow, asJSON bool
	var container string
	var limit int
	var since time.Duration
	var kept *conditions
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Print the audit record",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id := berth.ContainerID(container)
			entries := audit.Entries(where(), id)
			if follow {
				entries = audit.Follow(cmd.Context(), where(), id)
			}
			if since > 0 {
				entries = newer(entries, time.Now().Add(-since))
			}
			if limit > 0 {
				entries = last(entries, limit, kept)
			}
			return printEntries(cmd.Context(), cmd.OutOrStdout(), entries, kept, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new entries")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each entry as a JSON object")
	cmd.Flags().StringVar(&container, "container", "", "print only entries about this container")
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "print only the last entries, at most this many; 0 prints all")
	durationFlag(cmd, &since, "since", "", 0, "print only entries that are at most this old, such as 12h or 7d")
	cmd.MarkFlagsMutuallyExclusive("limit", "follow")
	kept = filterFlag[audit.Entry](cmd, "action=egress.*")
	return cmd
}

// newer returns the entries since a time.
func newer(all iter.Seq2[*audit.Entry, error], since time.Time) iter.Seq2[*audit.Entry, error] {
	return func(yield func(*audit.Entry, error) bool) {
		for e, err := range all {
			if (err != nil || !e.Time.Before(since)) && !yield(e, err) {
				return
			}
		}
	}
}

// last returns the last n entries that satisfy the conditions.
func last(all iter.Seq2[*audit.Entry, error], n int, kept *conditions) iter.Seq2[*audit.Entry, error] {
	return func(yield func(*audit.Entry, error) bool) {
		var tail []*audit.Entry
		for e, err := range all {
			shown := false
			if err == nil {
				shown, err = kept.keep(e)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !shown {
				continue
			}
			if len(tail) == n {
				tail = tail[1:]
			}
			tail = append(tail, e)
		}
		for _, e := range tail {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func printEntries(ctx context.Context, w io.Writer, entries iter.Seq2[*audit.Entry, error], kept *conditions,
	asJSON bool) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if shown, err := kept.keep(e); err != nil {
			return err
		} else if !shown {
			continue
		}
		line := entryText(e)
		if asJSON {
			raw, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line = string(raw)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// entryText formats an entry as text. Values from a sandbox are quoted.
func entryText(e *audit.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", e.Seq, e.Time.Format("2006-01-02T15:04:05.000Z"), e.Action)
	for _, f := range []struct{ name, value string }{
		{"project", string(e.Project)}, {"key", string(e.Key)}, {"person", e.Person},
		{"container", string(e.Container)}, {"object", e.Object},
		{"reason", e.Reason}, {"name", e.Name}, {"host", e.Host}, {"address", e.Address}, {"isolation", e.Isolation},
		{"template", e.Template}, {"snapshot", e.Snapshot},
	} {
		if f.value != "" && strings.ContainsFunc(f.value, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '"'
		}) {
			fmt.Fprintf(&b, " %s=%q", f.name, f.value)
		} else if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"port", int64(e.Port)}, {"bytes", e.Bytes}, {"sent", e.Sent}, {"received", e.Received},
		{"milliseconds", e.Milliseconds},
		{"count", e.Count}, {"refused", e.Refused}, {"living", int64(len(e.Living))}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.value)
		}
	}
	if e.Recovered {
		b.WriteString(" recovered")
	}
	return b.String()
}

func newAuditVerify(state *string, where func() string) *cobra.Command {
	var key, since string
	var quiet, all bool
	cmd := &cobra.Command{
		Use:   "verify [DIR...]",
		Short: "Check that the record is unchanged",
		Long: `Verify the hashes and signatures of all entries, and print the last checkpoint.

A process that can write to the record's directory can also roll back the record and
key.pub as a whole. Store the public key and, from time to time, a checkpoint elsewhere,
and pass them with --key and --since.

The servers of a cluster save their public keys and checkpoints in its database. With
--cluster, the command checks the records of all of them against these. Its arguments are
the directories of the other servers' records, or copies. A record that is missing is an
error.`,
		Example: "  berth audit verify\n  berth audit verify --cluster copies/server-2/audit copies/server-3/audit",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				if key != "" || since != "" {
					return usageError{errors.New(
						"--cluster reads keys and checkpoints from the database; omit --key and --since")}
				}
				return verifyCluster(cmd, *state, append([]string{where()}, args...))
			}
			if len(args) > 0 {
				return usageError{errors.New("directories need --cluster; to verify one, use --dir")}
			}
			public, err := keyOrFile(key, where())
			if err != nil {
				return err
			}
			var older []byte
			if since != "" {
				if older, err = os.ReadFile(since); err != nil {
					return err
				}
			}
			report, err := audit.Verify(where(), public, string(older))
			if audit.Broken(err) {
				return fmt.Errorf("the record is broken: %w", err)
			}
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !quiet {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d entries from %d on in %d segments are valid and signed.\n",
					report.Entries, report.First, report.Segments)
				if key == "" {
					fmt.Fprintln(cmd.ErrOrStderr(),
						"The key was read from beside the record; pass a copy stored elsewhere with --key.")
				}
			}
			_, err = io.WriteString(out, report.Checkpoint)
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "public key, or a file with it (default: key.pub beside the record)")
	cmd.Flags().StringVar(&since, "since", "", "file with an older checkpoint that the record must continue")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the checkpoint only")
	cmd.Flags().BoolVar(&all, "cluster", false, "check the records of all servers of the cluster")
	return cmd
}

// verifyCluster verifies the records of all servers of a cluster.
func verifyCluster(cmd *cobra.Command, dir string, dirs []string) error {
	records, err := state.VerifyRecords(cmd.Context(), dir, dirs)
	if err != nil {
		return err
	}
	wrong := 0
	for _, r := range records {
		name := r.Dir
		if r.Server != "" {
			name = strings.TrimSpace("server " + r.Server + " " + r.Dir)
		}
		if r.Err != nil {
			wrong++
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %v\n", name, r.Err)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(),
			"%s: %d entries from %d on are valid and signed; the saved checkpoint covers %d\n", name, r.Report.Entries,
			r.Report.First, r.Size)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d records are missing or broken", wrong, len(records))
	}
	return nil
}

// keyOrFile returns a public key: key itself, the content of the file key, or the key in dir.
func keyOrFile(key, dir string) (string, error) {
	switch {
	case key == "":
		return audit.PublicKey(dir)
	case strings.Contains(key, "+"):
		return key, nil
	}
	text, err := os.ReadFile(key)
	return strings.TrimSpace(string(text)), err
}

func newAuditKey(where func() string) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key of the audit record",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := audit.PublicKey(where())
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), key)
			}
			return err
		},
	}
}
