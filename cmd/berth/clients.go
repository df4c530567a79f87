package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/berth-run/berth/internal/connect"
)

// printClients prints how clients of other makers reach the server of the current context.
func printClients(w io.Writer, asJSON bool) error {
	server := connect.Server{URL: newClient(os.Getenv("BERTH_URL"), false).base, Key: connect.Key, Model: "MODEL"}
	clients := server.Clients()
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(clients)
	}
	fmt.Fprintf(w, "MODEL is a name that berth models prints. %s is a key of berth key create, "+
		"or any word if the server has no keys.\n", connect.Key)
	for _, c := range clients {
		for _, p := range c.Parts {
			place := "in a shell"
			if p.File != "" {
				place = "in " + p.File
			}
			fmt.Fprintf(w, "\n%s. %s, %s:\n\n%s\n", c.Name, p.Use, place, p.Text)
		}
	}
	return nil
}
