package main

import (
	"fmt"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server"
)

func newVolume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Create, list and remove volumes",
		Long: `Create, list and remove volumes: file systems that outlive containers. A request for a
container with "berth": {"volumes": [{"name": "data"}]} mounts one at /mnt/volumes/data.`,
	}
	cmd.AddCommand(newVolumeCreate(), newVolumeLs(), newVolumeRm())
	return cmd
}

func newVolumeCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a volume and print its id", Args: cobra.ExactArgs(1)}
	connect := clientFlags(cmd)
	size := cmd.Flags().String("size", "", "size, such as 500m or 10g (default: 10g)")
	expires := cmd.Flags().Duration("expires", 0, "lifetime while no container uses it, such as 720h; 0 means no expiry")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := map[string]any{"name": args[0]}
		if *size != "" {
			var n server.Bytes
			if err := yaml.Unmarshal([]byte(*size), &n); err != nil {
				return fmt.Errorf("--size: %q is not a size such as 10g", *size)
			}
			body["max_bytes"] = int64(n)
		}
		if *expires > 0 {
			body["expires_at"] = time.Now().Add(*expires).Unix()
		}
		var v berth.Volume
		if err := connect().call(cmd.Context(), "POST", "/v1/volumes", body, &v); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), v.ID)
		return err
	}
	return cmd
}

func newVolumeLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List volumes", Args: cobra.NoArgs}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var page struct{ Data []berth.Volume } // a project has at most one page
		if err := connect().call(cmd.Context(), "GET", "/v1/volumes?limit=100", nil, &page); err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tNAME\tMB\tOF\tCREATED\tEXPIRES")
		for _, v := range page.Data {
			expires := "never"
			if v.ExpiresAt != nil {
				expires = utc(*v.ExpiresAt)
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", v.ID, v.Name, v.Bytes>>20, v.MaxBytes>>20, utc(v.CreatedAt), expires)
		}
		return w.Flush()
	}
	return cmd
}

func newVolumeRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm VOLUME...", Short: "Remove volumes with their files", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		return each(ids, func(id string) error {
			return connect().call(cmd.Context(), "DELETE", "/v1/volumes/"+url.PathEscape(id), nil, nil)
		})
	}
	return cmd
}
