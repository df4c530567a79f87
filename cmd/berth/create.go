package main

import (
	"cmp"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// createOptions are the flags of berth create.
type createOptions struct {
	name, memory string
	idle         time.Duration
	allow        []string
	open         bool
	files        []string
	volumes      []string
	source       berth.ContainerSource
}

func newCreate() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create a container and print its id",
		Long: `Create a container and print its id. It starts in the background; its first command waits
for the start.

  berth create box
  berth create box --template python --memory 4g --allow pypi.org --volume data
  berth exec box python3 --version`,
		Args: cobra.MaximumNArgs(1),
	}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	cmd.Flags().StringVar(&o.memory, "memory", "", "memory: 1g, 4g, 16g or 64g (default: 1g)")
	cmd.Flags().DurationVar(&o.idle, "idle", 0, "time without use after which the container expires, such as 1h (default: the server's)")
	cmd.Flags().StringArrayVar(&o.allow, "allow", nil, "host that the container may reach, such as pypi.org or *.example.com:443; may be repeated")
	cmd.Flags().BoolVar(&o.open, "open-network", false, "allow every public host")
	cmd.Flags().StringArrayVar(&o.files, "file", nil, "file to upload into /mnt/data; may be repeated")
	cmd.Flags().StringArrayVar(&o.volumes, "volume", nil, "volume to mount, NAME[:PATH][:ro]; by default at /mnt/volumes/NAME; may be repeated")
	cmd.Flags().StringVar(&o.source.Template, "template", "", "template to start from")
	cmd.Flags().StringVar((*string)(&o.source.SnapshotID), "snapshot", "", "snapshot to start from")
	cmd.Flags().StringVar((*string)(&o.source.OnExpiry), "on-expiry", "", "what the container leaves when it expires: delete or snapshot")
	cmd.Flags().BoolVar(&o.source.KeepAwake, "keep-awake", false, "do not pause the container when it is quiet")
	cmd.MarkFlagsMutuallyExclusive("allow", "open-network")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.name = "container"
		if len(args) > 0 {
			o.name = args[0]
		}
		made, err := o.create(cmd, connect())
		if err != nil {
			return err
		}
		return created(string(made.ID), made)
	}
	return cmd
}

func (o *createOptions) create(cmd *cobra.Command, c *client) (*berth.Container, error) {
	body := map[string]any{"name": o.name}
	if o.memory != "" {
		if berth.MemoryLimits[o.memory] == 0 {
			return nil, badUsage("--memory %s: must be 1g, 4g, 16g or 64g", o.memory)
		}
		body["memory_limit"] = o.memory
	}
	if o.idle != 0 {
		if o.idle < time.Minute || o.idle%time.Minute != 0 {
			return nil, badUsage("--idle %s: must be whole minutes, such as 20m", o.idle)
		}
		body["expires_after"] = berth.ExpiresAfter{Anchor: "last_active_at", Minutes: int(o.idle.Minutes())}
	}
	if o.open {
		body["network_policy"] = berth.NetworkPolicy{Type: "open"}
	} else if len(o.allow) > 0 {
		body["network_policy"] = berth.NetworkPolicy{Type: "allowlist", AllowedDomains: o.allow}
	}
	for _, v := range o.volumes {
		name, readOnly := strings.CutSuffix(v, ":ro")
		name, at, _ := strings.Cut(name, ":")
		if name == "" || strings.Contains(name, "/") || at != "" && !path.IsAbs(at) {
			return nil, badUsage("--volume %s: must be NAME, NAME:PATH, NAME:ro or NAME:PATH:ro, such as --volume data:/srv/data; without a path, the volume is mounted at %s/NAME", v, berth.VolumeDir)
		}
		o.source.Volumes = append(o.source.Volumes, berth.VolumeMount{Name: name, Path: cmp.Or(at, path.Join(berth.VolumeDir, name)), ReadOnly: readOnly})
	}
	if o.source.SnapshotID != "" {
		id, err := snapshots.resolve(cmd.Context(), c, string(o.source.SnapshotID))
		if err != nil {
			return nil, err
		}
		o.source.SnapshotID = berth.SnapshotID(id)
	}
	ids, err := upload(cmd.Context(), c, o.files)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		body["file_ids"] = ids
	}
	if o.source.Template != "" || o.source.SnapshotID != "" || o.source.OnExpiry != "" || o.source.KeepAwake || len(o.source.Volumes) > 0 {
		body["berth"] = o.source
	}
	var made berth.Container
	return &made, c.call(cmd.Context(), "POST", "/v1/containers", body, &made)
}
