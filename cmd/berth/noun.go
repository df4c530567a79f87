package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// plural returns the plural of a noun.
func plural(noun string) string {
	if strings.HasSuffix(noun, "ch") {
		return noun + "es"
	}
	return noun + "s"
}

// newGet returns a command that prints objects of a kind as JSON. A flag named items prints the list below the path of
// the object instead; "" adds none.
func newGet(k kind, noun, items, below string) *cobra.Command {
	cmd := &cobra.Command{Use: "get " + noun + "...", Short: "Print " + plural(k.what) + " as JSON",
		Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	var list bool
	if items != "" {
		cmd.Flags().BoolVar(&list, items, false, "print its "+items+" in place of the object, each as a line of JSON")
	}
	cmd.ValidArgsFunction = k.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := k.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			path := k.path + "/" + url.PathEscape(id)
			if list {
				return c.printLines(cmd, path+below)
			}
			return c.printObject(cmd, path)
		})
	}
	return cmd
}

// newDelete returns a command that deletes objects of a kind.
func newDelete(k kind, noun, with string) *cobra.Command {
	cmd := &cobra.Command{Use: "rm " + noun + "...", Aliases: []string{"delete"},
		Short: "Delete " + plural(k.what) + with,
		Args:  cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = k.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := k.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), "DELETE", k.path+"/"+url.PathEscape(id), nil, nil)
		})
	}
	return cmd
}

// newLs returns a command that lists objects of a kind, the newest first. row returns the cells of an object after its
// id, separated by tabs like those of head.
func newLs[T any](k kind, example, head string, id func(*T) string, row func(*listing, *T) string) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List " + plural(k.what) + ", the newest first", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[T](cmd, example, 50)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*T](cmd.Context(), connect(), k.path, l)
		if err != nil {
			return err
		}
		return printList(cmd.OutOrStdout(), l, all, id, "ID\t"+head, func(o *T) string {
			return fmt.Sprintf("%s\t%s", l.id(id(o)), row(l, o))
		})
	}
	return cmd
}
