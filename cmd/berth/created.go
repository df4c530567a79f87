package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// createdFlag adds --json to a command that creates an object. The function that it returns prints
// text, such as the object's id, or with --json the object as a line of JSON.
func createdFlag(cmd *cobra.Command) func(text string, object any) error {
	asJSON := cmd.Flags().Bool("json", false, "print the new object as a line of JSON")
	return func(text string, object any) error {
		out := cmd.OutOrStdout()
		if !*asJSON {
			_, err := fmt.Fprintln(out, text)
			return err
		}
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		return e.Encode(object)
	}
}
