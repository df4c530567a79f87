package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/state"
)

func newImageRm(open func() (*image.Store, error), dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "rm TEMPLATE...",
		Short: "Remove templates by name or digest",
		Long: `Remove templates by name or digest. A template that containers or snapshots refer to
loses its name and is removed once nothing refers to it.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			images, err := open()
			if err != nil {
				return err
			}
			inUse, err := state.References(cmd.Context(), *dir)
			if err != nil {
				return err
			}
			for _, ref := range refs {
				if err := images.Remove(ref, inUse); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newImagePrune(open func() (*image.Store, error), dir *string) *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove templates and layers that nothing refers to",
		Long: `Remove templates that have no name and to which no container or snapshot refers, and
layers that belong to no template. A running server does this itself, a day after their
last use.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := open()
			if err != nil {
				return err
			}
			inUse, err := state.References(cmd.Context(), *dir)
			if err != nil {
				return err
			}
			done, err := images.Prune(cmd.Context(), inUse, grace)
			for _, digest := range done.Templates {
				fmt.Fprintln(cmd.OutOrStdout(), digest)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d templates, %d layers and documents, %d MB\n", len(done.Templates),
				done.Blobs, done.Bytes>>20)
			return err
		},
	}
	durationFlag(cmd, &grace, "unused-for", "", 0, "remove only what was unused for this long")
	return cmd
}

func newImageInspect(open func() (*image.Store, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect TEMPLATE",
		Short: "Show a template as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			images, err := open()
			if err != nil {
				return err
			}
			t, err := images.Get(args[0])
			if err != nil {
				return err
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(struct {
				Name string `json:"name,omitempty"`
				image.Template
				Recipe string `json:"recipe,omitempty"`
				Rootfs string `json:"rootfs"`
			}{t.Name, t, t.Recipe, t.Rootfs})
		},
	}
}
