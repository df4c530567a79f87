package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

var conversations = kind{"conversation", "/v1/conversations", berth.PrefixConversation, 0}

func newConversation() *cobra.Command {
	cmd := &cobra.Command{Use: "conversation", Short: "List, show and delete conversations",
		Long: `A conversation is a list of items that responses read and extend. It is created with
POST /v1/conversations, and used with "conversation" in a request for a response.`}
	cmd.AddCommand(newConversationLs(), newGet(conversations, "CONVERSATION", "items", "/items"),
		newDelete(conversations, "CONVERSATION", " with their items"))
	return cmd
}

func newConversationLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List conversations, the newest first", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[berth.Conversation](cmd, "metadata.team=red", 50)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*berth.Conversation](cmd.Context(), connect(), conversations.path, l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(c *berth.Conversation) string { return string(c.ID) },
			"ID\tCREATED\tMETADATA", func(c *berth.Conversation) string {
				var pairs []string
				for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
					pairs = append(pairs, inLine(key+"="+c.Metadata[key]))
				}
				return fmt.Sprintf("%s\t%s\t%s", l.id(string(c.ID)), l.since(now, c.CreatedAt),
					l.cut(strings.Join(pairs, " "), 48))
			})
	}
	return cmd
}
