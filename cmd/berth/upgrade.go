package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/release"
)

func newUpgrade() *cobra.Command {
	var from releaseFlags
	var check, asJSON bool
	cmd := &cobra.Command{
		Use:   "upgrade --check",
		Short: "Say whether there is a newer release",
		Long: `Say whether there is a newer release than this program. The program never replaces
itself: ` + berth.DocsURL + `upgrade.md says how to upgrade.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !check {
				return badUsage("berth upgrade only checks: use --check, and see " + berth.DocsURL + "upgrade.md")
			}
			source, err := from.source()
			if err != nil {
				return err
			}
			r, err := source.Open(cmd.Context(), release.Latest)
			if err != nil {
				return err
			}
			newer := semver.Compare("v"+r.Version, "v"+version) > 0
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Version string `json:"version"`
					Latest  string `json:"latest"`
					Newer   bool   `json:"newer"`
				}{version, r.Version, newer})
			}
			if newer {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Berth %s is out; this is %s. How to upgrade: %supgrade.md\n",
					r.Version, version, berth.DocsURL)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Berth %s is up to date; the newest release is %s.\n", version,
					r.Version)
			}
			return err
		},
	}
	from.add(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "ask the server of releases")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
