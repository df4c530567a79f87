package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
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
	connect, created := clientFlags(cmd), createdFlag(cmd)
	size := cmd.Flags().String("size", "", "size, such as 500m or 10g (default: 10g)")
	var expires time.Duration
	durationFlag(cmd, &expires, "expires", "", 0,
		"lifetime while no container uses it, such as 30d; 0 means no expiry")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := map[string]any{"name": args[0]}
		if *size != "" {
			var n config.Bytes
			if err := yaml.Unmarshal([]byte(*size), &n); err != nil {
				return badUsage("--size: %q is not a size such as 10g", *size)
			}
			body["max_bytes"] = int64(n)
		}
		if expires > 0 {
			body["expires_at"] = time.Now().Add(expires).Unix()
		}
		var v berth.Volume
		if err := connect().call(cmd.Context(), "POST", "/v1/volumes", body, &v); err != nil {
			return err
		}
		return created(string(v.ID), &v)
	}
	return cmd
}

func newVolumeLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List volumes", Args: cobra.NoArgs}
	connect, l := clientFlags(cmd), listFlags[berth.Volume](cmd, "name=data*", 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := listFor[*berth.Volume](cmd.Context(), connect(), "/v1/volumes", l)
		if err != nil {
			return err
		}
		now := time.Now()
		return printList(cmd.OutOrStdout(), l, all, func(v *berth.Volume) string { return string(v.ID) },
			"ID\tNAME\tMB\tOF\tCREATED\tEXPIRES", func(v *berth.Volume) string {
				expires := "never"
				if v.ExpiresAt != nil {
					expires = l.until(now, *v.ExpiresAt)
				}
				return fmt.Sprintf("%s\t%s\t%d\t%d\t%s\t%s", l.id(string(v.ID)), l.cut(v.Name, 24), v.Bytes>>20,
					v.MaxBytes>>20, l.since(now, v.CreatedAt), expires)
			})
	}
	return cmd
}

func newVolumeRm() *cobra.Command {
	cmd := &cobra.Command{Use: "rm VOLUME...", Short: "Remove volumes with their files", Args: cobra.MinimumNArgs(1)}
	connect := clientFlags(cmd)
	cmd.ValidArgsFunction = volumes.complete(connect, -1)
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c := connect()
		return each(refs, func(ref string) error {
			id, err := volumes.resolve(cmd.Context(), c, ref)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), "DELETE", "/v1/volumes/"+url.PathEscape(id), nil, nil)
		})
	}
	return cmd
}
