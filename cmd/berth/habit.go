package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// habits are commands of other programs, such as docker, that berth has under another name or not at all.
var habits = map[string]string{
	"berth build":     "berth image build builds a template",
	"berth commit":    "berth snapshot create saves the files of a container",
	"berth container": "berth ps lists containers; berth --help lists the commands for them",
	"berth docs":      "a server has its documentation at /docs/; it is at " + berth.DocsURL + "README.md, too",
	"berth events":    "berth logs --follow shows the commands of a container, berth audit log --follow what the server did",
	"berth get":       "the kinds of objects have a get command each, such as berth response get; berth inspect shows containers",
	"berth images":    "berth image ls lists the templates",
	"berth import":    "berth session import imports a chain of responses, berth image load a template",
	"berth info":      "berth doctor says what this machine can run",
	"berth kill":      "berth rm ends and deletes a container; a process inside it: berth exec CONTAINER kill PID",
	"berth list":      "berth ps lists containers; berth --help lists the kinds of other objects",
	"berth load":      "berth image load creates a template from an archive",
	"berth ls":        "berth ps lists containers; berth --help lists the kinds of other objects",
	"berth pull":      "berth image pull creates a template from an image of a registry",
	"berth push":      "berth image save writes a template to an archive, which other tools push",
	"berth rename":    "a container keeps its name; berth fork --name makes a copy with another name",
	"berth restart":   "berth fork starts a new container from the files of another; berth stop and berth serve restart the server",
	"berth rmi":       "berth image rm removes a template",
	"berth save":      "berth image save writes a template to an archive, berth snapshot create saves the files of a container",
	"berth sandbox":   "a sandbox of E2B's API is a container here: berth ps, berth exec, berth rm",
	"berth search":    "berth vector-store search searches a vector store",
	"berth shell":     "berth attach opens a terminal in a container",
	"berth ssh":       "berth attach opens a terminal in a container",
	"berth start":     "berth resume continues a paused container, and every command that uses it does so as well; berth serve starts the server",
	"berth stats":     "berth top shows what containers use",
	"berth template":  "berth image has the templates of the server; those of E2B's API belong to its clients",
	"berth unpause":   "berth resume continues a paused container",
	"berth volumes":   "berth volume ls lists the volumes",
	"berth wait":      "berth response get shows whether a response has ended, berth logs --follow waits for the end of a container",
}

// habit returns the error for a command of another program, or nil.
func habit(cmd *cobra.Command, name string) error {
	text := habits[cmd.CommandPath()+" "+name]
	if text == "" {
		return nil
	}
	return fmt.Errorf("%s has no command %s: %s", cmd.CommandPath(), name, text)
}

// noContainer is the check for arguments of a command on the server that docker has for containers.
func noContainer(text string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("unexpected argument %q: %s", args[0], strings.ReplaceAll(text, "CONTAINER", args[0]))
	}
}
