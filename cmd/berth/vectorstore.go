package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newVectorStore() *cobra.Command {
	cmd := &cobra.Command{Use: "vector-store", Short: "Create, list, search and delete vector stores",
		Long: `A vector store holds files that the tool file_search finds passages in. A request names it in
"vector_store_ids". See ` + berth.DocsURL + `file-search.md.`}
	cmd.AddCommand(newVectorStoreCreate(), newVectorStoreAdd(), newLs(vectorStores, "name=manuals",
		"NAME\tSTATUS\tFILES\tSIZE\tCREATED\tEXPIRES", func(v *berth.VectorStore) string { return string(v.ID) },
		func(l *listing, v *berth.VectorStore) string {
			now, expires := time.Now(), "never"
			if v.ExpiresAt != nil {
				expires = l.until(now, *v.ExpiresAt)
			}
			return fmt.Sprintf("%s\t%s\t%d\t%s\t%s\t%s", l.cut(inLine(v.Name), 20), v.Status, v.FileCounts.Total,
				size(v.UsageBytes), l.since(now, v.CreatedAt), expires)
		}), newGet(vectorStores, "VECTOR-STORE", "files", "/files"), newVectorStoreSearch(),
		newDelete(vectorStores, "VECTOR-STORE", "; their files stay"))
	return cmd
}

func newVectorStoreCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create NAME [FILE...]", Short: "Create a vector store of files and print its id",
		Long: `Create a vector store of files and print its id. The command ends when each file can be searched;
files that cannot be read are an error, and the others stay in the store.`, Args: cobra.MinimumNArgs(1)}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	wait := waitFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		ids, err := upload(cmd.Context(), c, args[1:])
		if err != nil {
			return err
		}
		body := map[string]any{"name": args[0]}
		if len(ids) > 0 {
			body["file_ids"] = ids
		}
		var made berth.VectorStore
		if err := c.call(cmd.Context(), http.MethodPost, vectorStores.path, body, &made); err != nil {
			return err
		}
		if err := created(string(made.ID), &made); err != nil || !*wait {
			return err
		}
		store := vectorStores.path + "/" + url.PathEscape(string(made.ID))
		return awaitFiles(cmd.Context(), c, store, store, namesOf(ids, args[1:]))
	}
	return cmd
}

func newVectorStoreAdd() *cobra.Command {
	cmd := &cobra.Command{Use: "add VECTOR-STORE FILE...", Short: "Upload files and add them to a vector store",
		Args: cobra.MinimumNArgs(2)}
	connect := clientFlags(cmd)
	wait := waitFlag(cmd)
	cmd.ValidArgsFunction = vectorStores.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := vectorStores.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		ids, err := upload(cmd.Context(), c, args[1:])
		if err != nil {
			return err
		}
		store := vectorStores.path + "/" + url.PathEscape(id)
		var batch struct{ ID string }
		if err := c.call(cmd.Context(), http.MethodPost, store+"/file_batches", map[string]any{"file_ids": ids},
			&batch); err != nil || !*wait {
			return err
		}
		return awaitFiles(cmd.Context(), c, store+"/file_batches/"+url.PathEscape(batch.ID), store,
			namesOf(ids, args[1:]))
	}
	return cmd
}

// waitFlag adds the flag that decides whether a command waits until files are read.
func waitFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("wait", true, "wait until the files can be searched")
}

func namesOf(ids []berth.FileID, names []string) map[berth.FileID]string {
	local := map[berth.FileID]string{}
	for i, id := range ids {
		local[id] = names[i]
	}
	return local
}

// readPause is the time between two looks at files that the server reads.
const readPause = 100 * time.Millisecond

// awaitFiles waits until a store or batch at a path has read its files, and returns an error if it could not read some
// of those in names.
func awaitFiles(ctx context.Context, c *client, path, store string, names map[berth.FileID]string) error {
	if len(names) == 0 {
		return nil
	}
	for {
		var state struct {
			FileCounts berth.FileCounts `json:"file_counts"`
		}
		if err := c.call(ctx, http.MethodGet, path, nil, &state); err != nil {
			return err
		}
		if state.FileCounts.InProgress == 0 {
			break
		}
		if err := pause(ctx, readPause); err != nil {
			return err
		}
	}
	failed := 0
	for after := ""; ; {
		var page struct {
			Data    []berth.VectorStoreFile
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		query := store + "/files?filter=failed&limit=100"
		if after != "" {
			query += "&after=" + url.QueryEscape(after)
		}
		if err := c.call(ctx, http.MethodGet, query, nil, &page); err != nil {
			return err
		}
		for _, f := range page.Data {
			if name, ours := names[f.ID]; ours && f.LastError != nil {
				failed++
				fmt.Fprintf(os.Stderr, "%s: %s\n", inLine(name), inLine(f.LastError.Message))
			}
		}
		if after = page.LastID; !page.HasMore || after == "" {
			break
		}
	}
	if failed > 0 {
		return fmt.Errorf("files that could not be read: %d of %d", failed, len(names))
	}
	return nil
}

func newVectorStoreSearch() *cobra.Command {
	cmd := &cobra.Command{Use: "search VECTOR-STORE QUERY", Short: "Search a vector store", Args: cobra.ExactArgs(2)}
	connect := clientFlags(cmd)
	most := cmd.Flags().IntP("limit", "n", 10, "print at most this many passages")
	asJSON := cmd.Flags().Bool("json", false, "print the answer as JSON")
	cmd.ValidArgsFunction = vectorStores.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := vectorStores.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		path := vectorStores.path + "/" + url.PathEscape(id) + "/search"
		body := map[string]any{"query": args[1], "max_num_results": *most}
		if *asJSON {
			return c.printAnswer(cmd, http.MethodPost, path, body)
		}
		var found struct {
			Data []struct {
				Filename string
				Score    float64
				Content  []struct{ Text string }
			}
		}
		if err := c.call(cmd.Context(), http.MethodPost, path, body, &found); err != nil {
			return err
		}
		l := &listing{}
		out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(out, "SCORE\tFILE\tTEXT")
		for _, f := range found.Data {
			text := ""
			for _, part := range f.Content {
				text += part.Text
			}
			fmt.Fprintf(out, "%.3f\t%s\t%s\n", f.Score, l.cut(inLine(f.Filename), 20), l.cut(inLine(text), 50))
		}
		return out.Flush()
	}
	return cmd
}
