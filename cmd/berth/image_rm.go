package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server"
)

func newImageRm(open func() (*image.Store, error), state *string) *cobra.Command {
	return &cobra.Command{
		Use:   "rm TEMPLATE...",
		Short: "Remove templates by name or digest",
		Long: `Remove templates by name or digest. One that containers or snapshots refer to
loses its name; it is removed when nothing refers to it any more.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			library, err := open()
			if err != nil {
				return err
			}
			kept, err := server.References(cmd.Context(), *state)
			if err != nil {
				return err
			}
			for _, ref := range refs {
				if err := library.Remove(ref, kept); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newImagePrune(open func() (*image.Store, error), state *string) *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove templates and layers that nothing refers to",
		Long: `Remove templates that have no name and that no container or snapshot refers to,
and layers that no template is made of. A server does so by itself, a day after
their last use.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			library, err := open()
			if err != nil {
				return err
			}
			kept, err := server.References(cmd.Context(), *state)
			if err != nil {
				return err
			}
			done, err := library.Prune(cmd.Context(), kept, grace)
			for _, digest := range done.Templates {
				fmt.Fprintln(cmd.OutOrStdout(), digest)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d templates, %d layers and documents, %d MB\n", len(done.Templates), done.Blobs, done.Bytes>>20)
			return err
		},
	}
	cmd.Flags().DurationVar(&grace, "unused-for", 0, "leave what was used since")
	return cmd
}

func newImageInspect(open func() (*image.Store, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect TEMPLATE",
		Short: "Show a template as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			library, err := open()
			if err != nil {
				return err
			}
			t, err := library.Get(args[0])
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
