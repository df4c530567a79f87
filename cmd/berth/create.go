package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// containerOptions are the flags for a new container.
type containerOptions struct {
	command       func() string // the path of the command that has the flags
	name, memory  string
	replace       bool
	idle          time.Duration
	allow         []string
	open          bool
	files         []string
	volumes       []string
	env, secrets  []string
	aws           []string
	secretFiles   []string
	variables     map[string]string
	domainSecrets []berth.DomainSecret
	network       berth.GroupNetwork
	source        berth.ContainerSource
}

// containerFlags adds the flags for a new container to a command.
func containerFlags(cmd *cobra.Command) *containerOptions {
	o := &containerOptions{command: cmd.CommandPath}
	cmd.Flags().StringVar(&o.name, "name", "",
		"name of the new container, which no other running one may have; commands accept it in place of the id")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "first delete the running container with the name")
	cmd.Flags().StringVar(&o.memory, "memory", "", "memory: 1g, 4g, 16g or 64g (default: 1g)")
	durationFlag(cmd, &o.idle, "idle", "", 0,
		"time without use after which the container expires, such as 1h (default: the server's)")
	cmd.Flags().StringArrayVarP(&o.env, "env", "e", nil,
		"environment variable of all commands, NAME=VALUE; NAME takes the value from the environment; may be repeated")
	cmd.Flags().StringArrayVar(&o.secrets, "secret", nil,
		"HOST=NAME: allow the host, and send it the value of the environment variable NAME where the container sends $NAME, which holds a placeholder; may be repeated")
	cmd.Flags().StringArrayVar(&o.aws, "aws", nil,
		"HOST=SERVICE:REGION: allow the host, and sign requests to it with the access key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which the container does not see; may be repeated")
	cmd.Flags().StringArrayVar(&o.secretFiles, "secret-file", nil,
		"JSON file with a domain secret of any type as in the API, such as of a GitHub App, or with a list of them; allows their hosts; may be repeated")
	cmd.Flags().StringArrayVar(&o.allow, "allow", nil,
		"host that the container may reach, such as pypi.org or *.example.com:443; or requests to a host, such as 'GET api.example.com/repos/**'; may be repeated")
	cmd.Flags().BoolVar(&o.open, "open-network", false, "allow every public host")
	cmd.Flags().StringArrayVar(&o.files, "file", nil, "file to upload into /mnt/data; may be repeated")
	cmd.Flags().StringArrayVar(&o.volumes, "volume", nil,
		"volume to mount, NAME[:PATH][:ro]; by default at /mnt/volumes/NAME; may be repeated")
	cmd.Flags().StringVar(&o.source.Template, "template", "", "template to start from")
	cmd.Flags().StringVar((*string)(&o.source.SnapshotID), "snapshot", "", "snapshot to start from")
	cmd.Flags().StringVar((*string)(&o.source.OnExpiry), "on-expiry", "",
		"what the container leaves when it expires: delete or snapshot")
	cmd.Flags().BoolVar(&o.source.KeepAwake, "keep-awake", false, "do not pause the container when it is quiet")
	cmd.Flags().StringVar(&o.network.Group, "group", "",
		"private network that the container joins: containers with the same group reach each other by name")
	cmd.Flags().StringVar(&o.network.Name, "as", "",
		"name by which the others of --group reach the container (default: its name)")
	cmd.Flags().IntSliceVar(&o.network.Ports, "expose", nil,
		"port at which the others of --group reach the container if it is a Pod; other drivers have all ports; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("allow", "open-network")
	cmd.MarkFlagsMutuallyExclusive("secret", "open-network")
	cmd.MarkFlagsMutuallyExclusive("aws", "open-network")
	cmd.MarkFlagsMutuallyExclusive("secret-file", "open-network")
	return o
}

func newCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create a container and print its id",
		Long: `Create a container and print its id. It starts in the background; its first command waits
for the start.

  berth create box
  berth create box --replace --template python --memory 4g --allow pypi.org --volume data
  berth create box --secret api.example.com=API_TOKEN -e STAGE=test
  berth create db --group task-7
  berth exec box python3 --version

Containers with the same --group reach each other by name, at all ports: db:5432.

No other running container of the project may have the same NAME, unless it was created
through OpenAI's API, which lets names repeat. --replace deletes the other one first.`,
		Args: cobra.MaximumNArgs(1),
	}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	o := containerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if o.name != "" && o.name != args[0] {
				return badUsage("two names, %s and %s", args[0], o.name)
			}
			o.name = args[0]
		}
		if err := o.check(); err != nil {
			return err
		}
		if o.network.Group != "" && o.name == "" && o.network.Name == "" {
			return badUsage("--group: the container needs a name, or --as with the name by which the others reach it")
		}
		c := connect()
		c.patience = templatePatience
		made, err := o.create(cmd.Context(), c)
		if err != nil {
			return err
		}
		return created(string(made.ID), made)
	}
	return cmd
}

// check returns an error for wrong values. Otherwise it sets the fields that it parses.
func (o *containerOptions) check() error {
	if o.memory != "" && berth.MemoryLimits[o.memory] == 0 {
		return badUsage("--memory %s: must be 1g, 4g, 16g or 64g", o.memory)
	}
	if o.idle != 0 && (o.idle < time.Minute || o.idle%time.Minute != 0) {
		return badUsage("--idle %s: must be whole minutes, such as 20m", o.idle)
	}
	if o.replace && o.name == "" {
		return badUsage("--replace needs a name")
	}
	for _, one := range o.env {
		name, value, given := strings.Cut(one, "=")
		if !given {
			if value, given = os.LookupEnv(name); !given {
				return badUsage("--env %s: there is no environment variable with the name; use NAME=VALUE", one)
			}
		}
		if name == "" {
			return badUsage("--env %s: must be NAME=VALUE or NAME", one)
		}
		if o.variables == nil {
			o.variables = map[string]string{}
		}
		o.variables[name] = value
	}
	for _, one := range o.secrets {
		host, name, ok := strings.Cut(one, "=")
		if !ok || host == "" || name == "" {
			return badUsage("--secret %s: must be HOST=NAME, such as api.example.com=API_TOKEN", one)
		}
		value := os.Getenv(name)
		if value == "" {
			return badUsage(
				"--secret %s: the environment variable %s is not set; it has the value that the container does not see",
				one, name)
		}
		o.addSecret(berth.DomainSecret{Domain: host, Name: name, Value: value})
	}
	if err := errors.Join(o.checkKeys(), o.readSecrets()); err != nil {
		return err
	}
	if o.network.Group != "" {
		o.source.Network = &o.network
	} else if o.network.Name != "" || len(o.network.Ports) > 0 {
		return badUsage("--as and --expose need --group")
	}
	for _, v := range o.volumes {
		name, readOnly := strings.CutSuffix(v, ":ro")
		name, at, _ := strings.Cut(name, ":")
		if name == "" || strings.Contains(name, "/") || at != "" && !path.IsAbs(at) {
			return badUsage(
				"--volume %s: must be NAME, NAME:PATH, NAME:ro or NAME:PATH:ro, such as --volume data:/srv/data; without a path, the volume is mounted at %s/NAME",
				v, berth.VolumeDir)
		}
		o.source.Volumes = append(o.source.Volumes, berth.VolumeMount{Name: name,
			Path: cmp.Or(at, path.Join(berth.VolumeDir, name)), ReadOnly: readOnly})
	}
	return nil
}

// allowed divides the values of --allow into hosts and requests, such as "GET example.com/". The host of a request is
// allowed, too.
func allowed(values []string) (hosts, requests []string) {
	for _, v := range values {
		host := v
		if _, rest, ok := strings.Cut(v, " "); ok {
			requests = append(requests, v)
			host, _, _ = strings.Cut(rest, "/")
		}
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts, requests
}

// body returns the fields that a request for a container and a container_auto of a tool share.
func (o *containerOptions) body(ctx context.Context, c *client) (map[string]any, error) {
	body := map[string]any{}
	if o.memory != "" {
		body["memory_limit"] = o.memory
	}
	if o.open {
		body["network_policy"] = berth.NetworkPolicy{Type: "open"}
	} else if len(o.allow) > 0 {
		hosts, requests := allowed(o.allow)
		body["network_policy"] = berth.NetworkPolicy{Type: "allowlist", AllowedDomains: hosts,
			AllowedRequests: requests, DomainSecrets: o.domainSecrets}
	}
	if o.source.SnapshotID != "" {
		id, err := snapshots.resolve(ctx, c, string(o.source.SnapshotID))
		if err != nil {
			return nil, err
		}
		o.source.SnapshotID = berth.SnapshotID(id)
	}
	ids, err := upload(ctx, c, o.files)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		body["file_ids"] = ids
	}
	if o.extends() {
		body["berth"] = o.source
	}
	return body, nil
}

// extends reports whether the options need the field "berth" of a request.
func (o *containerOptions) extends() bool {
	s := o.source
	return s.Template != "" || s.SnapshotID != "" || s.OnExpiry != "" || s.OnLost != "" || s.KeepAwake ||
		len(s.Volumes) > 0 || s.Network != nil
}

// create creates the container.
func (o *containerOptions) create(ctx context.Context, c *client) (*berth.Container, error) {
	body, err := o.body(ctx, c)
	if err != nil {
		return nil, err
	}
	body["name"] = cmp.Or(o.name, "container")
	if o.idle != 0 {
		body["expires_after"] = berth.ExpiresAfter{Anchor: "last_active_at", Minutes: int(o.idle.Minutes())}
	}
	if o.extends() || o.name != "" || len(o.variables) > 0 {
		body["berth"] = berth.ContainerExtension{ContainerSource: o.source, UniqueName: o.name != "", Env: o.variables}
	}
	if o.replace {
		if err := c.removeNamed(ctx, o.name); err != nil {
			return nil, err
		}
	}
	var made berth.Container
	err = c.call(ctx, http.MethodPost, "/v1/containers", body, &made)
	if o.name != "" {
		err = suggestReplace(err, o.command())
	}
	return &made, err
}

// suggestReplace adds to the error for a name that is taken how a command replaces the container that has it.
func suggestReplace(err error, command string) error {
	if e, ok := err.(*apiError); ok && e.status == http.StatusConflict {
		e.message += " (" + command + " --replace deletes it first.)"
	}
	return err
}

// removeNamed deletes the running container that has a name as its unique name, if there is one.
func (c *client) removeNamed(ctx context.Context, name string) error {
	all, err := list[*berth.Container](ctx, c, containers.path+"?"+url.Values{"name": {name}}.Encode())
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.Status != berth.ContainerRunning || !one.Berth.UniqueName {
			continue
		}
		if err := c.call(ctx, http.MethodDelete, "/v1/containers/"+url.PathEscape(string(one.ID)), nil,
			nil); err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
}
