package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// gVisor is the version of the gVisor module in berth-runsc. It is set by the build.
var gVisor string

// commit is the full hash of the commit, set by the build for when Go does not record it: with
// -buildvcs=false, or in a checkout of another user.
var commit string

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version of this binary", Args: cobra.NoArgs}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := thisBuild()
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		}
		changed := ""
		if b.Modified {
			changed = " (modified)"
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(),
			"berth    %s\ncommit   %s%s\ndate     %s\ngo       %s\ngvisor   %s\nplatform %s\n",
			b.Version, orDash(b.Commit), changed, orDash(b.Date), b.Go, orDash(b.GVisor), b.Platform)
		return err
	}
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// pseudoVersion matches the version of a module at a commit, with its time and hash.
var pseudoVersion = regexp.MustCompile(`[.-](\d{14})-([0-9a-f]{12})(?:\+dirty)?$`)

// thisBuild describes this binary.
func thisBuild() berth.Build {
	b := berth.Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		GVisor: gVisor}
	b.Commit = commit
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return b
	}
	if m := pseudoVersion.FindStringSubmatch(info.Main.Version); m != nil {
		b.Commit = cmp.Or(b.Commit, m[2])
		if at, err := time.Parse("20060102150405", m[1]); err == nil {
			b.Date = at.Format(time.RFC3339)
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
