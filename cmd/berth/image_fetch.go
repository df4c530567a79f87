package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/release"
	"github.com/berth-run/berth/server/config"
)

// releaseFlags are the flags of commands that read releases.
type releaseFlags struct {
	from, signers string
	unsigned      bool
}

// The defaults of releaseFlags.
const (
	releasesURL   = "https://github.com/berth-run/berth/releases"
	releasesEnv   = "BERTH_RELEASES"
	unsignedUsage = "trust the checksums of the server without a signature"
)

// signersFiles are where the keys that may sign releases are; the first that exists is read. install.sh and operators
// write the first, a package has the second.
var signersFiles = []string{"/etc/berth/release-signers", "/usr/share/berth/release-signers"}

func (f *releaseFlags) add(cmd *cobra.Command) {
	from := releasesURL
	if set := os.Getenv(releasesEnv); set != "" {
		from = set
	}
	cmd.Flags().StringVar(&f.from, "from", from, "URL of the releases ("+releasesEnv+")")
	cmd.Flags().StringVar(&f.signers, "signers", "",
		"file of keys that may sign releases, as an allowed_signers file of ssh-keygen (default: "+
			strings.Join(signersFiles, ", or ")+")")
	cmd.Flags().BoolVar(&f.unsigned, "unsigned", false, unsignedUsage)
	cmd.MarkFlagsMutuallyExclusive("signers", "unsigned")
}

// source returns the releases.
func (f *releaseFlags) source() (*release.Source, error) {
	s := &release.Source{URL: f.from}
	if f.unsigned {
		return s, nil
	}
	file, text, err := f.readSigners()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s of keys that may sign releases: put the publisher's there, "+
			"name another with --signers, or trust the server with --unsigned", file)
	}
	if err != nil {
		return nil, err
	}
	if s.Signers, err = release.ParseSigners(text); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// readSigners returns the name and the content of the file of signers. If there is none, its name is the one to make.
func (f *releaseFlags) readSigners() (string, []byte, error) {
	if f.signers != "" {
		text, err := os.ReadFile(f.signers)
		return f.signers, text, err
	}
	for _, file := range signersFiles {
		if text, err := os.ReadFile(file); !errors.Is(err, os.ErrNotExist) {
			return file, text, err
		}
	}
	return signersFiles[0], nil, os.ErrNotExist
}

func newImageFetch(open func() (*image.Store, error), state *string) *cobra.Command {
	var as, of string
	var missing bool
	var size config.Bytes
	var from releaseFlags
	cmd := &cobra.Command{
		Use:   "fetch [TEMPLATE]",
		Short: "Download a template of a release",
		Long: `Download a template of a release of Berth, by default base, in place of building it.
The file has the checksum that the release lists, and one of the release's signers
has signed the list:

  berth image fetch
  berth image fetch --from https://mirror.example/berth --signers ./signers

A server of releases has the files of version 1.2.3 in download/v1.2.3/ below its
URL, and those of the newest in latest/download/.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := image.Base().Name
			if len(args) > 0 {
				name = args[0]
			}
			if as == "" {
				as = name
			}
			source, err := from.source()
			if err != nil {
				return err
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
			r, err := source.Open(cmd.Context(), of)
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp(*state, "fetch-*")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			file := fmt.Sprintf("berth-%s_%s_linux_%s.tar", name, r.Version, runtime.GOARCH)
			archive := filepath.Join(dir, file)
			if err := r.Fetch(cmd.Context(), file, archive, fetchProgress(file)); err != nil {
				return err
			}
			f, err := os.Open(archive)
			if err != nil {
				return err
			}
			defer f.Close()
			t, err := images.Load(cmd.Context(), f, image.LoadOptions{Name: as,
				AddOptions: image.AddOptions{MaxBytes: int64(size), Progress: showProgress}})
			if err != nil {
				return err
			}
			return showTemplate(cmd.OutOrStdout(), t)
		},
	}
	from.add(cmd)
	cmd.Flags().StringVar(&of, "release", release.Latest, "version of the release, such as 1.2.3")
	cmd.Flags().StringVar(&as, "name", "", "name of the template (default: the one that it has)")
	cmd.Flags().BoolVar(&missing, "if-missing", false, "do nothing if there is a template with that name")
	sizeFlag(cmd, &size)
	return cmd
}

// fetchProgress returns a function that shows the progress of a download, once a second.
func fetchProgress(file string) func(done, total int64) {
	began := time.Now()
	var last time.Time
	return func(done, total int64) {
		if now := time.Now(); done == total || now.Sub(last) >= time.Second {
			last = now
			showProgress(image.Progress{Phase: image.Download, Done: int(done >> 20),
				Total: int(max(done, total) >> 20),
				Step:  file, Elapsed: now.Sub(began)})
		}
	}
}
