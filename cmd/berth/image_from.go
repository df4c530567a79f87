package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/state"
)

// buildDockerfile builds a template from a Dockerfile.
func buildDockerfile(cmd *cobra.Command, images *image.Store, dir, as string, args []string) error {
	if as == "" {
		return errors.New("a template from a Dockerfile needs a name: berth image build --dockerfile DIR NAME")
	}
	dir, args = dockerfile(dir, args)
	t, err := images.Dockerfile(cmd.Context(), as, dir, args, cmd.ErrOrStderr(),
		image.AddOptions{Progress: showProgress})
	if err != nil {
		return err
	}
	return showTemplate(cmd.OutOrStdout(), t)
}

// dockerfile returns the directory of --dockerfile, which may also be a file, and the arguments for its builder.
func dockerfile(path string, args []string) (dir string, all []string) {
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return path, args
	}
	return filepath.Dir(path), append([]string{"--file", path}, args...)
}

// buildSnapshot builds a template from a project's snapshot.
func buildSnapshot(cmd *cobra.Command, images *image.Store, dir, owner, id, as string) error {
	if as == "" {
		return errors.New("a template from a snapshot needs a name: berth image build --from-snapshot SNAPSHOT NAME")
	}
	p, err := project.ParseID("--project", owner)
	if err != nil {
		return err
	}
	opened, err := state.OpenExisting(cmd.Context(), dir)
	if err != nil {
		return err
	}
	defer opened.Close()
	record, err := opened.Snapshots.Record(cmd.Context(), p, berth.SnapshotID(id))
	if err != nil {
		return err
	}
	content, err := opened.Snapshots.Open(cmd.Context(), p, record)
	if err != nil {
		return err
	}
	defer content.Close()
	t, err := images.Derive(cmd.Context(), as, image.Change{Template: record.Snapshot.Template,
		Digest: record.Snapshot.Digest}, content)
	if err != nil {
		return err
	}
	return showTemplate(cmd.OutOrStdout(), t)
}
