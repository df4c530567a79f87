package main

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

func newFile() *cobra.Command {
	cmd := &cobra.Command{Use: "file", Short: "Upload, list, print and delete files"}
	cmd.AddCommand(newFileLs(), newFileUpload(), newFileCat(), newFileRm())
	return cmd
}

func newFileLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List files", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[berth.File](cmd, "purpose=user_data", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*berth.File](cmd.Context(), connect(), "/v1/files", l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(f *berth.File) string { return string(f.ID) },
			"ID\tNAME\tPURPOSE\tSIZE\tCREATED\tEXPIRES", func(f *berth.File) string {
				expires := "never"
				if f.ExpiresAt != nil {
					expires = l.until(now, *f.ExpiresAt)
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", l.id(string(f.ID)), l.cut(inLine(f.Filename), 24),
					inLine(f.Purpose), size(f.Bytes), l.since(now, f.CreatedAt), expires)
			})
	}
	return cmd
}

func newFileUpload() *cobra.Command {
	cmd := &cobra.Command{Use: "upload FILE...", Short: "Upload files and print their ids", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		c := connect()
		return each(names, func(name string) error {
			ids, err := upload(cmd.Context(), c, []string{name})
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), ids[0])
			}
			return err
		})
	}
	return cmd
}

func newFileCat() *cobra.Command {
	cmd := &cobra.Command{Use: "cat FILE", Short: "Print the content of a file", Args: cobra.ExactArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = files.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := files.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		resp, err := c.do(cmd.Context(), "GET", "/v1/files/"+url.PathEscape(id)+"/content", "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(cmd.OutOrStdout(), resp.Body)
		return err
	}
	return cmd
}

func newFileRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm FILE...", Short: "Delete files", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = files.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := files.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), "DELETE", "/v1/files/"+url.PathEscape(id), nil, nil)
		})
	}
	return cmd
}
