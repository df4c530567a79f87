package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

var batches = kind{"batch", "/v1/batches", berth.PrefixBatch, 0}

func newBatch() *cobra.Command {
	cmd := &cobra.Command{Use: "batch", Short: "Create, list, show and cancel batches",
		Long: `A batch runs the requests of a file, one a line, when the server has room for them.
See ` + berth.DocsURL + `batches.md.`}
	cmd.AddCommand(newBatchCreate(), newLs(batches, "status=in_progress", "STATUS\tDONE\tOF\tFAILED\tCREATED\tWAITS FOR",
		func(b *berth.Batch) string { return string(b.ID) }, func(l *listing, b *berth.Batch) string {
			waits := "-"
			if b.Berth != nil && b.Berth.WaitingFor != "" {
				waits = l.cut(inLine(b.Berth.WaitingFor), 24)
			}
			n := b.RequestCounts
			return fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%s", b.Status, n.Completed, n.Total, n.Failed,
				l.since(time.Now(), b.CreatedAt), waits)
		}), newGet(batches, "BATCH", "", ""), newBatchOutput(), newBatchCancel())
	return cmd
}

func newBatchCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create FILE", Short: "Upload a file of requests, create a batch of it and print its id",
		Args: cobra.ExactArgs(1)}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	endpoint := cmd.Flags().String("endpoint", "/v1/responses", "endpoint of all requests")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		var file berth.File
		if err := c.sendFile(cmd.Context(), "/v1/files", map[string]string{"purpose": "batch"}, "file", args[0],
			&file); err != nil {
			return err
		}
		var made berth.Batch
		if err := c.call(cmd.Context(), http.MethodPost, batches.path, map[string]any{"input_file_id": file.ID,
			"endpoint": *endpoint, "completion_window": "24h"}, &made); err != nil {
			return err
		}
		return created(string(made.ID), &made)
	}
	return cmd
}

func newBatchOutput() *cobra.Command {
	cmd := &cobra.Command{Use: "output BATCH", Short: "Print the answers of a batch, each as a line of JSON",
		Args: cobra.ExactArgs(1)}
	connect := clientFlags(cmd)
	failed := cmd.Flags().Bool("errors", false, "print the errors of requests that failed")
	cmd.ValidArgsFunction = batches.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := batches.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		var b berth.Batch
		if err := c.call(cmd.Context(), http.MethodGet, batches.path+"/"+url.PathEscape(id), nil, &b); err != nil {
			return err
		}
		file := b.OutputFileID
		if *failed {
			file = b.ErrorFileID
		}
		if file == nil {
			return errors.New("the batch is " + string(b.Status) + " and has no such file")
		}
		resp, err := c.do(cmd.Context(), http.MethodGet, "/v1/files/"+url.PathEscape(string(*file))+"/content", "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(cmd.OutOrStdout(), resp.Body)
		return err
	}
	return cmd
}

func newBatchCancel() *cobra.Command {
	cmd := &cobra.Command{Use: "cancel BATCH...", Short: "Cancel batches", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = batches.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := batches.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), http.MethodPost, batches.path+"/"+url.PathEscape(id)+"/cancel", nil, nil)
		})
	}
	return cmd
}
