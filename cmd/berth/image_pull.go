package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/image/registry"
	"github.com/berth-run/berth/server/config"
)

func newImagePull(open func() (*image.Store, error)) *cobra.Command {
	var as string
	var stdin, missing bool
	var size config.Bytes
	opts := registry.Options{UserAgent: "berth/" + version}
	cmd := &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Create a template from an image in a registry",
		Long: `Create a template from an image in a registry, named by tag or by digest:

  berth image pull python:3.12-slim
  berth image pull registry.example/team/geo@sha256:…  --name geo

For private registries, the command uses the credentials of docker login or podman
login, including credential helpers and REGISTRY_AUTH_FILE, or --username with
--password-stdin. It downloads only missing layers; an interrupted pull resumes
after the last complete layer.

The image needs /bin/sh. Root in the template runs what the image's author chose:
see ` + berth.DocsURL + `templates.md.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if stdin != (opts.Username != "") {
				return badUsage("--username and --password-stdin must be used together")
			}
			if stdin {
				if opts.Password, err = readPassword(cmd.InOrStdin()); err != nil {
					return err
				}
			}
			if as == "" {
				as = registry.TemplateName(args[0])
			}
			images, err := open()
			if err != nil {
				return err
			}
			if missing {
				t, err := images.Get(as)
				if err == nil {
					return showTemplate(cmd.OutOrStdout(), t)
				}
				if !errors.Is(err, image.ErrNotFound) {
					return err
				}
			}
			img, err := registry.Find(cmd.Context(), args[0], opts)
			if err != nil {
				return err
			}
			t, err := images.Add(cmd.Context(), as, img, image.AddOptions{Platform: opts.Platform,
				MaxBytes: int64(size), Progress: showProgress})
			if err != nil {
				return err
			}
			return showTemplate(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().StringVar(&as, "name", "", "name of the template (default: the image's name and tag)")
	cmd.Flags().BoolVar(&missing, "if-missing", false, "do nothing if there is a template with that name")
	cmd.Flags().StringVar(&opts.Platform, "platform", "",
		"platform of the image, such as linux/arm64 (default: this machine's)")
	cmd.Flags().BoolVar(&opts.Insecure, "insecure", false, "allow plain HTTP to a registry on this machine")
	cmd.Flags().StringVar(&opts.Username, "username", "", "user name for the registry")
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password for the registry from standard input")
	sizeFlag(cmd, &size)
	return cmd
}

// sizeFlag adds --max-size to a command.
func sizeFlag(cmd *cobra.Command, size *config.Bytes) {
	*size = image.DefaultMaxBytes
	cmd.Flags().Var(size, "max-size", "maximum unpacked size of the image")
}

// showTemplate prints a template on one line.
func showTemplate(w io.Writer, t image.Template) error {
	_, err := fmt.Fprintf(w, "%s %s (%d MB, %d packages)\n", t.Name, t.Digest, t.Bytes>>20, len(t.Packages))
	return err
}

// readPassword reads a password from the first line of r.
func readPassword(r io.Reader) (string, error) {
	const longest = 64 << 10 // tokens are long
	line, err := bufio.NewReader(io.LimitReader(r, longest)).ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	if err != nil && err != io.EOF || line == "" {
		return "", errors.Join(errors.New("no password on standard input"), err)
	}
	return line, nil
}
