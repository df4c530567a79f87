package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/compose"
	"github.com/berth-run/berth/image/registry"
)

// healthLook is the longest pause between two checks of a service that others wait for.
const healthLook = time.Second

// A stack is the containers of a compose file.
type stack struct {
	project *compose.Project
	group   string
	open    bool
	allow   []string
	client  *client
	out     io.Writer
}

// stackFlags adds the flags that up and down share. read reads the file.
func stackFlags(cmd *cobra.Command) (read func() (*stack, error)) {
	var file, group string
	cmd.Flags().StringVarP(&file, "file", "f", "compose.yaml", "the file; - is standard input")
	cmd.Flags().StringVar(&group, "group", "",
		"private network of the containers, and the first part of their names (default: the file's name, or that of its directory)")
	connect := clientFlags(cmd)
	return func() (*stack, error) {
		text, err := readFile(cmd, file)
		if err != nil {
			return nil, err
		}
		p, err := compose.Parse(text, os.LookupEnv)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		name := cmp.Or(group, p.Name)
		if name == "" {
			dir, err := filepath.Abs(filepath.Dir(file))
			if err != nil {
				return nil, err
			}
			name = strings.ToLower(filepath.Base(dir))
		}
		return &stack{project: p, group: name, client: connect(), out: cmd.OutOrStdout()}, nil
	}
}

func readFile(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(cmd.InOrStdin(), 2<<20))
	}
	return os.ReadFile(file)
}

func newUp() *cobra.Command {
	var open bool
	var allow []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the containers of a compose file",
		Long: `Start a container for each service of a file like those of Docker Compose, in the order of
depends_on, and wait until each is ready. They reach each other by the names of the services. The containers are called
GROUP-SERVICE, and the output of their commands is in /tmp/SERVICE.log.

  berth up -f compose.yaml
  berth up --group task-7 --allow pypi.org
  berth exec task-7-default ls

If one does not become ready, all are removed again. An image is the template of that name (berth image pull); a key that
a container cannot honour is an error.`,
		Args: cobra.NoArgs,
	}
	read := stackFlags(cmd)
	cmd.Flags().BoolVar(&open, "open-network", false, "allow every public host to all containers")
	cmd.Flags().StringArrayVar(&allow, "allow", nil, "host that all containers may reach; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("allow", "open-network")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := read()
		if err != nil {
			return err
		}
		st.open, st.allow = open, allow
		for _, key := range st.project.Ignored {
			fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s has no effect\n", key)
		}
		st.client.patience = templatePatience
		return st.up(cmd.Context())
	}
	return cmd
}

func newDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Delete the containers of a compose file",
		Long: `Delete the containers that berth up has started from the same file and with the same group.

  berth down -f compose.yaml
  berth down --group task-7`,
		Args: cobra.NoArgs,
	}
	read := stackFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := read()
		if err != nil {
			return err
		}
		return st.down(cmd.Context(), st.project.Services)
	}
	return cmd
}

// container returns the name of a service's container.
func (st *stack) container(s *compose.Service) string { return st.group + "-" + s.Name }

// up starts the services. If one fails, it deletes those that it has created.
func (st *stack) up(ctx context.Context) error {
	awaited := map[string]compose.Condition{} // by others
	for _, s := range st.project.Services {
		for _, need := range s.Needs {
			if awaited[need.Service] != compose.Completed {
				awaited[need.Service] = need.Condition
			}
		}
	}
	for i, s := range st.project.Services {
		id, err := st.create(ctx, s)
		if err == nil {
			if err = st.start(ctx, s, id, awaited[s.Name] == compose.Completed); err != nil {
				i++ // this one, too
			}
		}
		if err != nil {
			err = fmt.Errorf("service %s: %w", s.Name, err)
			return errors.Join(err, st.down(context.WithoutCancel(ctx), st.project.Services[:i]))
		}
		fmt.Fprintf(st.out, "%s\t%s\n", st.container(s), id)
		for _, port := range s.Published {
			fmt.Fprintf(st.out, "%s\tberth port %s %s\n", st.container(s), st.container(s), port)
		}
	}
	return nil
}

// create creates the container of a service.
func (st *stack) create(ctx context.Context, s *compose.Service) (string, error) {
	body := map[string]any{"name": st.container(s)}
	source := berth.ContainerSource{Template: s.Template, Volumes: s.Volumes}
	if source.Template == "" && s.Image != "" {
		source.Template = registry.TemplateName(s.Image)
	}
	if s.Memory != "" {
		body["memory_limit"] = s.Memory
	}
	if !s.Isolated {
		source.Network = &berth.GroupNetwork{Group: st.group, Name: s.Name, Ports: s.Ports}
		switch hosts := append(s.Allow, st.allow...); {
		case st.open:
			body["network_policy"] = berth.NetworkPolicy{Type: "open"}
		case len(hosts) > 0:
			body["network_policy"] = berth.NetworkPolicy{Type: "allowlist", AllowedDomains: hosts}
		}
	}
	body["berth"] = berth.ContainerExtension{ContainerSource: source, UniqueName: true, Env: s.Environment}
	var made berth.Container
	err := st.client.call(ctx, http.MethodPost, "/v1/containers", body, &made)
	if e, ok := err.(*apiError); ok && e.status == http.StatusConflict {
		e.message += " (berth down deletes the containers of a file.)"
	}
	return string(made.ID), err
}

// An execution is the answer to a command.
type execution struct {
	ExitCode *int   `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

// start starts the command of a service and waits until it is ready.
func (st *stack) start(ctx context.Context, s *compose.Service, id string, completes bool) error {
	user := cmp.Or(s.User, "root")
	if len(s.Command) > 0 {
		log := "/tmp/" + s.Name + ".log"
		run := `exec setsid -f "$@"` // which succeeds also without such a program
		if completes {
			run = `exec "$@"`
		}
		script := `exec >` + log + ` 2>&1 </dev/null; command -v "$1" >/dev/null || { echo "$1: not found"; exit 127; }; ` + run
		did, err := st.exec(ctx, id, map[string]any{"command": append([]string{"/bin/sh", "-c", script, "sh"},
			s.Command...), "user": user, "working_directory": s.Dir, "timeout_ms": time.Hour.Milliseconds()})
		if err != nil {
			return err
		}
		if did.ExitCode == nil || *did.ExitCode != 0 {
			return fmt.Errorf("its command failed: %s", st.tail(ctx, id, log))
		}
	}
	if s.Health == nil {
		return nil
	}
	for began := time.Now(); ; {
		did, err := st.exec(ctx, id, map[string]any{"command": s.Health.Test, "user": user, "working_directory": s.Dir,
			"timeout_ms": s.Health.Timeout.Milliseconds()})
		if err != nil {
			return err
		}
		if did.ExitCode != nil && *did.ExitCode == 0 {
			return nil
		}
		if time.Since(began) > s.Health.Patience() {
			return fmt.Errorf("it did not become healthy in %s: %s", s.Health.Patience(),
				cmp.Or(strings.TrimSpace(did.Stderr+did.Stdout), st.tail(ctx, id, "/tmp/"+s.Name+".log")))
		}
		select {
		case <-time.After(min(s.Health.Interval, healthLook)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tail returns the end of a log in a container.
func (st *stack) tail(ctx context.Context, id, log string) string {
	did, err := st.exec(ctx, id, map[string]any{"command": []string{"tail", "-n", "20", log}, "user": "root"})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(did.Stdout)
}

func (st *stack) exec(ctx context.Context, id string, body map[string]any) (did execution, err error) {
	if body["working_directory"] == "" {
		delete(body, "working_directory")
	}
	err = st.client.call(ctx, http.MethodPost, "/v1/containers/"+url.PathEscape(id)+"/exec", body, &did)
	return did, err
}

// down deletes the containers of services, the last first.
func (st *stack) down(ctx context.Context, services []*compose.Service) error {
	var failed []error
	for i := len(services) - 1; i >= 0; i-- {
		if err := st.client.removeNamed(ctx, st.container(services[i])); err != nil {
			failed = append(failed, fmt.Errorf("service %s: %w", services[i].Name, err))
		}
	}
	return errors.Join(failed...)
}
