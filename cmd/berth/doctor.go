package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/server"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can run",
		Long: `Check what this machine can run: the kernel, a real sandbox if there is a template, the
state directory and the configuration. Print what is missing. The exit code is 1 if berth
serve could not start containers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err == nil {
				err = c.Verify()
			}
			findings := server.Examine(cmd.Context(), cmd.Flag("state").Value.String(), c, err)
			if err := report(cmd.OutOrStdout(), findings, asJSON); err != nil {
				return err
			}
			for _, f := range findings {
				if !f.OK {
					return exitError(1)
				}
			}
			return nil
		},
	}
	cmd.Flags().String("state", server.DefaultState(), "directory for all state")
	configFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func report(w io.Writer, findings []server.Finding, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(findings)
	}
	for _, f := range findings {
		mark := "ok  "
		if !f.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "%s  %-14s %s\n", mark, f.What, f.Detail)
		if f.Advice != "" {
			fmt.Fprintf(w, "      %-14s %s\n", "", f.Advice)
		}
	}
	return nil
}
