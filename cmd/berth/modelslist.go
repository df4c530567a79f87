package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newModels() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List models and the status of their upstreams",
		Long: `List the models and the status of their upstreams: whether they are skipped because
they failed, the turns in progress, and the keys that are skipped for a while. Only keys of
the default project see upstreams.`,
		Args: cobra.NoArgs,
	}
	connect := clientFlags(cmd)
	l := listFlags[berth.Model](cmd, "id=gpt*", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var models struct{ Data []berth.Model }
		var upstreams struct{ Data []berth.Upstream }
		if err := connect().call(cmd.Context(), "GET", "/v1/models", nil, &models); err != nil {
			return err
		}
		err := printList(cmd.OutOrStdout(), l, models.Data, func(m berth.Model) string { return m.ID },
			"MODEL\tPROVIDER\tCONTEXT", func(m berth.Model) string {
				about := cmp.Or(m.Berth, &berth.ModelBerth{})
				window := "-"
				if about.ContextWindow > 0 {
					window = fmt.Sprint(about.ContextWindow)
				}
				return fmt.Sprintf("%s\t%s\t%s", inLine(m.ID), about.Provider, window)
			})
		if err != nil || l.json || l.quiet || len(l.where.all) > 0 {
			return err
		}
		err = connect().call(cmd.Context(), "GET", "/v1/upstreams", nil, &upstreams)
		if err != nil && strings.Contains(err.Error(), "does not serve") || err == nil && len(upstreams.Data) == 0 {
			return nil // the key belongs to another project, or there are no upstreams
		}
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\nUPSTREAM\tCIRCUIT\tIN FLIGHT\tWAITING\tTURNS\tFAILED\tRESTING KEYS")
		for _, u := range upstreams.Data {
			var resting []string
			for _, k := range u.Keys {
				if k.RestSeconds > 0 {
					resting = append(resting, fmt.Sprintf("%s (%d s)", k.Name, k.RestSeconds))
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", u.Name, u.Circuit, u.InFlight, u.Waiting, u.Turns, u.Failed,
				cmp.Or(strings.Join(resting, ", "), "-"))
		}
		return w.Flush()
	}
	return cmd
}
