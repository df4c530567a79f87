package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Make, list and remove API keys"}
	open := storeFlag(cmd)
	cmd.AddCommand(newKeyCreate(open), newKeyLs(open), newKeyRm(open))
	return cmd
}

func newKeyCreate(open opener) *cobra.Command {
	var name, of string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a key and print its secret, once",
		Long: `Make a key and print its secret. It is not kept: only its SHA-256 is. From the
first key on a running server asks every caller for one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			owner, err := project.ParseID("--project", of)
			if err != nil {
				return err
			}
			db, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			if p, err := project.Get(cmd.Context(), db, owner); err != nil {
				return err
			} else if p.Status == berth.ProjectArchived {
				return fmt.Errorf("the project %s is archived", owner)
			}
			secret := berth.KeyPrefix + rand.Text() + rand.Text()
			k := &berth.Key{ID: berth.KeyID(berth.NewID(berth.PrefixKey)), Project: owner,
				Name: name, Hash: sha256.Sum256([]byte(secret)), Tail: secret[len(secret)-4:], CreatedAt: time.Now().Unix()}
			if expires > 0 {
				k.ExpiresAt = time.Now().Add(expires).Unix()
			}
			if err := db.CreateKey(cmd.Context(), k); err != nil {
				return err
			}
			if err := recordKey(cmd, audit.Entry{Action: audit.KeyCreated, Project: k.Project, Object: string(k.ID), Name: k.Name}); err != nil {
				return errors.Join(err, db.DeleteKey(cmd.Context(), k.ID))
			}
			fmt.Fprintln(cmd.OutOrStdout(), secret)
			return nil
		},
	}
	cmd.Flags().StringVar(&of, "project", string(berth.DefaultProject), "project that the key acts for")
	cmd.Flags().StringVar(&name, "name", "", "a name to know it by")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is good for, such as 720h; 0 is for ever")
	return cmd
}

func newKeyLs(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List keys",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			keys, err := db.ListKeys(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tPROJECT\tNAME\tSECRET\tCREATED\tEXPIRES")
			for _, k := range keys {
				expires := "never"
				if k.ExpiresAt != 0 {
					expires = utc(k.ExpiresAt)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t…%s\t%s\t%s\n", k.ID, k.Project, k.Name, k.Tail, utc(k.CreatedAt), expires)
			}
			return w.Flush()
		},
	}
}

// utc is a moment in Unix seconds as people read it.
func utc(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

func newKeyRm(open opener) *cobra.Command {
	var last bool
	cmd := &cobra.Command{
		Use:   "rm KEY...",
		Short: "Remove keys by id",
		Long: `Remove keys by id. They are refused from the next request on.

The last key is removed with --last only. A server that runs then refuses every
request, until a key is made. One that is started without a key serves everybody
on this machine, and refuses to listen on other addresses than loopback.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			db, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			left, err := keysWithout(cmd.Context(), db, ids)
			if err != nil {
				return err
			}
			if left == 0 && !last {
				return errors.New("no key would be left: a server started then serves everybody on this machine without one; make another key first, or use --last")
			}
			for _, id := range ids {
				if err := db.DeleteKey(cmd.Context(), berth.KeyID(strings.TrimSpace(id))); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				if err := recordKey(cmd, audit.Entry{Action: audit.KeyRevoked, Object: strings.TrimSpace(id)}); err != nil {
					return err
				}
			}
			if left == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No key is left: a running server refuses every request; one that is started now serves everybody on this machine without a key.")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "remove the last key as well")
	return cmd
}

// keysWithout returns how many keys are left without some, which must be there.
func keysWithout(ctx context.Context, keys store.Keys, ids []string) (int, error) {
	all, err := keys.ListKeys(ctx)
	if err != nil {
		return 0, fmt.Errorf("list keys: %w", err)
	}
	for _, id := range ids {
		id := berth.KeyID(strings.TrimSpace(id))
		i := slices.IndexFunc(all, func(k *berth.Key) bool { return k.ID == id })
		if i < 0 {
			return 0, fmt.Errorf("%s: %w", id, store.ErrNotFound)
		}
		all = slices.Delete(all, i, i+1)
	}
	return len(all), nil
}
