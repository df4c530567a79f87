package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
)

func newImageSave(open func() (*image.Store, error)) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "save TEMPLATE",
		Short: "Write a template to an archive",
		Long: `Write a template to an archive that berth image load, docker load and other tools
read: an OCI image layout. A pulled template is saved as the very image that was pulled.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			images, err := open()
			if err != nil {
				return err
			}
			if output != "" {
				return images.SaveFile(cmd.Context(), args[0], output, showProgress)
			}
			if term.IsTerminal(int(os.Stdout.Fd())) {
				return errors.New("refusing to write an archive to a terminal; name a file with --output")
			}
			return images.Save(cmd.Context(), args[0], cmd.OutOrStdout(), showProgress)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file (default: standard output)")
	return cmd
}

func newImageLoad(open func() (*image.Store, error)) *cobra.Command {
	var input string
	var size config.Bytes
	opts := image.LoadOptions{AddOptions: image.AddOptions{Progress: showProgress}}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Create a template from an image in an archive",
		Long: `Create a template from an image in an archive, compressed or not: an OCI image layout,
as berth image save and many builders write it, or the output of docker save.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := open()
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if input != "" {
				f, err := os.Open(input)
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			opts.MaxBytes = int64(size)
			t, err := images.Load(cmd.Context(), in, opts)
			if err != nil {
				return err
			}
			return showTemplate(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().StringVarP(&input, "input", "i", "", "file (default: standard input)")
	cmd.Flags().StringVar(&opts.Name, "name", "", "name of the template (default: the image's name in the archive)")
	cmd.Flags().StringVar(&opts.Ref, "image", "", "image to load from an archive with several")
	cmd.Flags().StringVar(&opts.Platform, "platform", "",
		"platform of the image, such as linux/arm64 (default: this machine's)")
	sizeFlag(cmd, &size)
	return cmd
}
