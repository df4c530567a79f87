package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
)

func newImage() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Create, list and remove templates"}
	state := cmd.PersistentFlags().String("state", config.DefaultState(), "directory for all state")
	isNew := func() bool {
		_, err := os.Stat(*state)
		return errors.Is(err, fs.ErrNotExist)
	}
	existing := func() (*image.Store, error) {
		if isNew() {
			return nil, noState(*state)
		}
		return image.Open(filepath.Join(*state, "images"), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	open := func() (*image.Store, error) {
		if err := mustExist(*state); err != nil {
			return nil, err
		}
		return image.Open(filepath.Join(*state, "images"), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	cmd.AddCommand(newImageBuild(open, state), newImagePull(open), newImageFetch(open, state), newImageSave(existing),
		newImageLoad(open),
		newImageLs(existing), newImageInspect(existing),
		newImageRm(existing, state), newImagePrune(existing, state), newImageKernel(state))
	return cmd
}

func newImageBuild(open func() (*image.Store, error), state *string) *cobra.Command {
	var file, dockerfile, snap, project string
	var ifChanged bool
	cmd := &cobra.Command{
		Use:   "build [NAME] [-- BUILDER-ARGUMENT...]",
		Short: "Build a template from Debian packages, a Dockerfile or a snapshot",
		Long: `Build a template from Debian packages with mmdebstrap, from the Dockerfile in a
directory with this machine's Docker or Podman (--dockerfile), or from a snapshot
of a container (--from-snapshot). The default is the base template: bash,
coreutils, Python with pandas and matplotlib, Node.js, git, curl, jq, sqlite3, and
sudo for the user "user". "full" has more: LibreOffice, pandoc, ffmpeg, R, Go, a
JDK and others. A recipe (--file) is a YAML file:

  name: small
  suite: bookworm                 # default: this machine's
  mirrors: [http://deb.debian.org/debian]  # default: this machine's
  packages: [bash, curl, jq]
  files: [{path: /etc/motd, mode: 0644, content: "hello"}]
  run: ["date > /etc/built"]      # as root in the template, last

A recipe runs commands as root on the building machine. An ordinary user needs
subordinate ids (/etc/subuid); commands then run as root of a user namespace.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			as, rest, err := buildArgs(cmd, args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && dockerfile == "" {
				return badUsage("arguments after -- require --dockerfile")
			}
			images, err := open()
			if err != nil {
				return err
			}
			switch {
			case dockerfile != "":
				return buildDockerfile(cmd, images, dockerfile, as, rest)
			case snap != "":
				return buildSnapshot(cmd, images, *state, project, snap, as)
			}
			return buildRecipe(cmd, images, file, as, ifChanged)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "recipe (YAML)")
	cmd.Flags().String("name", "", "name of the template, in place of NAME")
	cmd.Flags().StringVar(&dockerfile, "dockerfile", "",
		"directory with a Dockerfile, or the file, whose directory it then is; arguments after -- go to its builder")
	cmd.Flags().StringVar(&snap, "from-snapshot", "", "snapshot (snap_…)")
	cmd.Flags().StringVar(&project, "project", string(berth.DefaultProject), "project of the snapshot")
	cmd.MarkFlagsMutuallyExclusive("file", "dockerfile", "from-snapshot")
	cmd.Flags().BoolVar(&ifChanged, "if-changed", false,
		"build only if the template is missing or its recipe has changed")
	return cmd
}

// buildRecipe builds a template from the recipe in file, or from the base recipe if file is "".
func buildRecipe(cmd *cobra.Command, images *image.Store, file, as string, ifChanged bool) error {
	recipe, err := readRecipe(file)
	if standard, ok := image.Standard()[as]; ok && file == "" {
		recipe = standard
	}
	if err != nil {
		return err
	}
	recipe.Name = cmp.Or(as, recipe.Name)
	t, err := images.Get(recipe.Name)
	if ifChanged && err == nil && t.Recipe == recipe.Digest() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s is up to date\n", t.Name, t.Digest)
		return nil
	}
	t, err = images.Build(cmd.Context(), recipe, showProgress)
	if err != nil {
		return err
	}
	return showTemplate(cmd.OutOrStdout(), t)
}

// buildArgs returns the template's name, or "", and the arguments after --.
func buildArgs(cmd *cobra.Command, args []string) (as string, rest []string, err error) {
	if i := cmd.ArgsLenAtDash(); i >= 0 {
		args, rest = args[:i], args[i:]
	}
	name := cmd.Flags().Lookup("name").Value.String()
	if name != "" && len(args) > 0 {
		return "", nil, badUsage("two names, %s and %s", args[0], name)
	}
	if name != "" {
		args = []string{name}
	}
	if len(args) > 1 {
		return "", nil, badUsage("expected at most one name, got %q", args)
	}
	return strings.Join(args, ""), rest, nil
}

// readRecipe reads a recipe from file, or returns the base recipe if file is "".
func readRecipe(file string) (image.Recipe, error) {
	if file == "" {
		return image.Base(), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return image.Recipe{}, err
	}
	var recipe image.Recipe
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&recipe); err != nil {
		return image.Recipe{}, fmt.Errorf("%s: %w", file, err)
	}
	return recipe, nil
}

func showProgress(p image.Progress) {
	count := ""
	if p.Total > 0 {
		count = fmt.Sprintf("%d/%d", p.Done, p.Total)
	}
	fmt.Fprintf(os.Stderr, "%6.1fs  %-9s %7s  %s\n", p.Elapsed.Seconds(), p.Phase, count, inLine(p.Step))
}

func newImageLs(open func() (*image.Store, error)) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List templates", Args: cobra.NoArgs}
	l := listFlags[templateRow](cmd, "name=base", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		images, err := open()
		if err != nil {
			return err
		}
		all, err := images.List()
		if err != nil {
			return err
		}
		rows := make([]templateRow, len(all))
		for i, t := range all {
			rows[i] = templateRow{t.Name, t.Digest, t.Bytes, len(t.Packages), t.CreatedAt}
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, rows, func(t templateRow) string { return t.Digest },
			"NAME\tDIGEST\tMB\tPACKAGES\tCREATED", func(t templateRow) string {
				digest := t.Digest
				if !l.full {
					digest = fmt.Sprintf("%.19s", digest)
				}
				return fmt.Sprintf("%s\t%s\t%d\t%d\t%s", l.cut(inLine(cmp.Or(t.Name, "-")), 24), digest, t.Bytes>>20,
					t.Packages, l.since(now, t.CreatedAt.Unix()))
			})
	}
	return cmd
}

// A templateRow is a template as berth image ls prints it.
type templateRow struct {
	Name      string    `json:"name"` // "" if it has none
	Digest    string    `json:"digest"`
	Bytes     int64     `json:"bytes"`
	Packages  int       `json:"packages"` // their number
	CreatedAt time.Time `json:"created_at"`
}
