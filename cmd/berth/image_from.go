package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"gocloud.dev/blob/fileblob"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store/sqlite"
)

// buildDockerfile makes a template of a Dockerfile.
func buildDockerfile(cmd *cobra.Command, library *image.Store, dir, as string, args []string) error {
	if as == "" {
		return errors.New("a template of a Dockerfile needs a name: berth image build --dockerfile DIR NAME")
	}
	t, err := library.Dockerfile(cmd.Context(), as, dir, args, cmd.ErrOrStderr(), image.AddOptions{Progress: showProgress})
	if err != nil {
		return err
	}
	return showTemplate(cmd.OutOrStdout(), t)
}

// buildSnapshot makes a template of a project's snapshot.
func buildSnapshot(cmd *cobra.Command, library *image.Store, state, project, id, as string) error {
	if as == "" {
		return errors.New("a template of a snapshot needs a name: berth image build --from-snapshot SNAPSHOT NAME")
	}
	p, err := projectID("--project", project)
	if err != nil {
		return err
	}
	kept, err := openKept(cmd.Context(), state)
	if err != nil {
		return err
	}
	defer kept.Close()
	record, err := kept.Record(cmd.Context(), p, berth.SnapshotID(id))
	if err != nil {
		return err
	}
	content, err := kept.Open(cmd.Context(), p, record)
	if err != nil {
		return err
	}
	defer content.Close()
	t, err := library.Derive(cmd.Context(), as, image.Change{Template: record.Snapshot.Template, Digest: record.Snapshot.Digest}, content)
	if err != nil {
		return err
	}
	return showTemplate(cmd.OutOrStdout(), t)
}

// A keptState is what a state directory keeps, for commands beside a server: nothing
// is swept, which is the server's to do.
type keptState struct {
	*snapshot.Service
	db    *sqlite.DB
	close func() error
}

// openKept opens a state directory that is there.
func openKept(ctx context.Context, state string) (*keptState, error) {
	if _, err := os.Stat(filepath.Join(state, "berth.db")); err != nil {
		return nil, err
	}
	key, err := sealKey(state)
	if err != nil {
		return nil, err
	}
	db, err := openStore(ctx, state, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	bucket, err := fileblob.OpenBucket(filepath.Join(state, "snapshots"), &fileblob.Options{CreateDir: true, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &keptState{snapshot.New(snapshot.Options{Objects: db, Bucket: bucket, Seal: seal.New(key)}), db,
		func() error { return errors.Join(bucket.Close(), db.Close()) }}, nil
}

func (k *keptState) Close() error { return k.close() }

// referencesIn returns the digests that containers and snapshots of a state
// directory refer to, whether or not a server runs on it.
func referencesIn(ctx context.Context, state string) (map[string]bool, error) {
	kept, err := openKept(ctx, state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer kept.Close()
	return references(ctx, kept.db, kept.Service)
}
