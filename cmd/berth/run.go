package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/server"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// maxEvent is the size of the largest event of a stream, in bytes.
const maxEvent = 64 << 20

// A task is the task of berth run.
type task struct {
	model, text         string
	out                 outDir
	made                *containerOptions // of a new container
	container, previous string
	instructions        string
	tools               []string
	parsed              []map[string]any // of tools
	noContainer         bool
	background          bool
	quiet, full, json   bool
}

func newRun() *cobra.Command {
	var t task
	var base *string
	var plain *bool
	cmd := &cobra.Command{
		Use:   `run [flags] "TASK"`,
		Short: "Run a task with a model and a container",
		Long: `Run a task: send it with its files to a model that has a shell in a container, show
the progress, print the answer, and download the files that were created.

  berth run --model qwen3-32b --file sales.csv --out results "Chart the monthly totals."
  berth run --previous resp_… "Now as a PDF."
  berth run --name box --secret api.github.com=GITHUB_TOKEN -e STAGE=test "List my repositories."
  berth run --tool web_search --tool file_search=manuals --background "Compare the vendors."

--out names a new or empty directory. Hidden files stay in the container, because local
programs would execute what a sandbox writes to .git or .envrc. --force allows other
directories, --hidden includes hidden files.

--out also saves the images that code displays and that image_generation makes, as image-1.png.

Progress goes to standard error, the answer to standard output. The output of a command is
shown up to 30 lines; --full shows all, --quiet no progress. The exit code is 0 if the
response is completed, 3 if it is incomplete, 130 after an interrupt, and 1 otherwise.

Without --model and BERTH_MODEL, the server's only model is used. The model "scripted" needs
no upstream: it runs the fenced sh blocks of the task and echoes other text. Without --url,
BERTH_URL and berth login, and with no server on port 8080, the server runs in this process,
and logs only with BERTH_LOG_LEVEL=debug.`,
		Args: oneTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.text = args[0]
			if err := t.out.check(); err != nil {
				return err
			}
			if err := t.made.check(); err != nil {
				return err
			}
			tools, err := parseTools(t.tools)
			if err != nil {
				return err
			}
			t.parsed = tools
			c, stop, err := serverFor(cmd, *base, *plain)
			if err != nil {
				return err
			}
			defer stop()
			c.patience = templatePatience
			if err := t.resolve(cmd.Context(), c); err != nil {
				return err
			}
			return t.run(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
	base, plain = urlFlag(cmd), plainFlag(cmd)
	cmd.Flags().String("state", config.DefaultState(), "state directory of a server in this process")
	cmd.Flags().String("config", os.Getenv(config.FileVariable), "configuration of a server in this process")
	cmd.Flags().StringVar(&t.model, "model", os.Getenv("BERTH_MODEL"), "model (default: the only one of the server)")
	t.made = containerFlags(cmd)
	cmd.Flags().StringArrayVar(&t.tools, "tool", nil, toolUsage)
	cmd.Flags().BoolVar(&t.background, "background", false,
		"print the id of the response and let it run on the server; berth response get shows its answer")
	cmd.Flags().StringVar(&t.out.dir, "out", "", "new or empty directory for the created files")
	cmd.Flags().BoolVar(&t.out.force, "force", false, "let --out replace files in a non-empty directory")
	cmd.Flags().BoolVar(&t.out.hidden, "hidden", false, "let --out also save hidden files, such as .git/config")
	cmd.Flags().StringVar(&t.container, "container", "", "container to use")
	cmd.Flags().StringVar((*string)(&t.made.source.OnLost), "on-lost", "",
		"if the container of --previous is lost with its files: fail, or new for a new one")
	cmd.Flags().StringVar(&t.previous, "previous", "", "response to continue")
	cmd.Flags().StringVar(&t.instructions, "instructions", "", "system message")
	cmd.Flags().BoolVar(&t.noContainer, "no-container", false, "give the model no shell and no container")
	cmd.Flags().BoolVarP(&t.quiet, "quiet", "q", false, "show no progress")
	cmd.Flags().BoolVar(&t.json, "json", false, "print the response as a line of JSON in place of the answer")
	cmd.Flags().BoolVar(&t.full, "full", false, "show all output of commands")
	cmd.MarkFlagsMutuallyExclusive("quiet", "full")
	for _, flag := range []string{"container", "name", "env", "secret", "allow", "open-network", "volume", "memory",
		"idle", "template", "snapshot", "file", "out"} {
		cmd.MarkFlagsMutuallyExclusive("no-container", flag)
	}
	for _, flag := range []string{"name", "env", "secret", "allow", "open-network", "volume", "memory", "idle",
		"template", "snapshot", "on-expiry", "keep-awake"} {
		cmd.MarkFlagsMutuallyExclusive("container", flag)
	}
	for _, flag := range []string{"out", "full", "quiet"} {
		cmd.MarkFlagsMutuallyExclusive("background", flag)
	}
	return cmd
}

// demoModel is the built-in model, which is never chosen by default.
const demoModel = "scripted"

// resolve replaces parts of ids and names by ids, and selects the model.
func (t *task) resolve(ctx context.Context, c *client) error {
	for _, ref := range []struct {
		kind kind
		id   *string
	}{{containers, &t.container}, {responses, &t.previous}} {
		if *ref.id == "" {
			continue
		}
		id, err := ref.kind.resolve(ctx, c, *ref.id)
		if err != nil {
			return err
		}
		*ref.id = id
	}
	if t.model != "" {
		return nil
	}
	var models struct{ Data []berth.Model }
	if err := c.call(ctx, "GET", "/v1/models", nil, &models); err != nil {
		return err
	}
	var ids []string
	for _, m := range models.Data {
		if m.ID != demoModel {
			ids = append(ids, inLine(m.ID))
		}
	}
	switch len(ids) {
	case 0:
		return errors.New(
			"the server has no model: configure one (" + berth.DocsURL + "models.md), or use --model scripted, which runs the fenced sh blocks of the task")
	case 1:
		t.model = ids[0]
		return nil
	}
	const most = 10
	if len(ids) > most {
		ids = append(ids[:most], "…")
	}
	return fmt.Errorf("the server has several models: select one with --model or BERTH_MODEL: %s",
		strings.Join(ids, ", "))
}

// oneTask requires exactly one argument, the task.
func oneTask(_ *cobra.Command, args []string) error {
	if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
		return errors.New("berth run needs one TASK, in quotes")
	}
	return nil
}

const (
	startPatience    = 30 * time.Second       // for a server that starts
	startPause       = 200 * time.Millisecond // between two looks at it
	templatePatience = 3 * time.Minute        // for a template that the server loads or builds
)

// serverFor returns a client of the server at base, of the server on the default port, or of one
// that it starts in this process.
func serverFor(cmd *cobra.Command, base string, plain bool) (c *client, stop func(), err error) {
	ctx := cmd.Context()
	if c := newClient(base, plain); base != "" || c.base != defaultURL {
		return c, func() {}, nil
	}
	c = newClient(defaultURL, false)
	probe, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if c.serves(probe) {
		return c, func() {}, nil
	}
	conf, err := loadConfig(cmd)
	if err != nil {
		return nil, nil, err
	}
	dir, err := filepath.Abs(conf.State)
	if err != nil {
		return nil, nil, err
	}
	if state.IsServed(dir) { // by a server that starts, or that listens elsewhere
		return c, func() {}, c.await(ctx, dir)
	}
	log := slog.New(slog.DiscardHandler) // the client prints the errors, berth doctor the warnings about the machine
	if conf.Log.Threshold() == slog.LevelDebug {
		log, _ = newLogger(conf.Log)
	}
	adoptLog(log)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	s, err := server.New(ctx, server.Options{State: dir, Config: conf, Build: thisBuild(), Log: log})
	if err != nil {
		l.Close()
		return nil, nil, err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Serve(serving, l) }()
	return newClient("http://"+l.Addr().String(), false), func() {
		end()
		<-done
	}, nil
}

// await waits until the server of a state directory answers.
func (c *client) await(ctx context.Context, dir string) error {
	for end := time.Now().Add(startPatience); !c.serves(ctx); {
		if err := pause(ctx, startPause); err != nil {
			return err
		}
		if time.Now().After(end) || !state.IsServed(dir) {
			return fmt.Errorf("another server uses %s and does not answer at %s; name its address with --url", dir, c.base)
		}
	}
	return nil
}

// run runs the task and writes its answer to out.
func (t *task) run(ctx context.Context, c *client, out io.Writer) error {
	body := map[string]any{"model": t.model, "input": t.text, "stream": !t.background}
	if t.background {
		body["background"] = true
	}
	tools, err := t.resolveTools(ctx, c)
	if err != nil {
		return err
	}
	if !t.noContainer {
		environment, err := t.environment(ctx, c)
		if err != nil {
			return err
		}
		tools = append(tools, map[string]any{"type": berth.ToolShell, "environment": environment})
	}
	if len(tools) > 0 {
		body["tools"] = tools
	}
	if slices.ContainsFunc(t.parsed, isCode) {
		body["include"] = []string{"code_interpreter_call.outputs"}
	}
	if t.previous != "" {
		body["previous_response_id"] = t.previous
	}
	if t.instructions != "" {
		body["instructions"] = t.instructions
	}
	if t.background {
		return t.start(ctx, c, body, out)
	}
	p := newProgress(os.Stderr)
	p.quiet = t.quiet
	if t.full {
		p.fold = 0
	}
	r, err := follow(ctx, c, body, p)
	if err != nil {
		return err
	}
	if text := answer(r); t.json {
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		if err := e.Encode(r); err != nil {
			return err
		}
	} else if text != "" || r.Error == nil {
		fmt.Fprintln(out, text)
	}
	if !t.quiet {
		p.citations(r)
	}
	container, err := containerOf(r)
	if err != nil {
		return err
	}
	if !hasCalls(r) && container != "" {
		// A response without calls creates no container. It may continue one that has.
		if err := c.call(ctx, "GET", "/v1/containers/"+url.PathEscape(string(container)), nil, nil); isNotFound(err) {
			container = ""
		}
	}
	if !t.quiet {
		fmt.Fprintln(os.Stderr, idLine(r.ID, container))
	}
	if t.out.dir != "" {
		if err := t.out.save(ctx, c, container, r); err != nil {
			return err
		}
	}
	switch r.Status {
	case berth.StatusCompleted:
		return nil
	case berth.StatusIncomplete:
		return exitError(exitIncomplete)
	}
	if r.Error != nil {
		return withRequest(errors.New(r.Error.Message), p.request)
	}
	return exitError(1)
}

// environment returns the environment of the shell.
func (t *task) environment(ctx context.Context, c *client) (map[string]any, error) {
	if t.container != "" {
		if len(t.made.files) > 0 {
			return nil, badUsage("--file is for a new container; use berth cp for the files of --container")
		}
		return map[string]any{"type": berth.EnvironmentReference, "container_id": t.container}, nil
	}
	if t.made.name != "" || len(t.made.variables) > 0 || t.made.idle != 0 { // which a container_auto does not have
		made, err := t.made.create(ctx, c)
		if err != nil {
			return nil, err
		}
		return map[string]any{"type": berth.EnvironmentReference, "container_id": made.ID}, nil
	}
	body, err := t.made.body(ctx, c)
	if err != nil {
		return nil, err
	}
	body["type"] = berth.EnvironmentAuto
	return body, nil
}

// start starts the task in the background and prints the id of its response.
func (t *task) start(ctx context.Context, c *client, body map[string]any, out io.Writer) error {
	var raw json.RawMessage
	if err := c.call(ctx, http.MethodPost, "/v1/responses", body, &raw); err != nil {
		return err
	}
	var r berth.Response
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}
	text := string(r.ID)
	if t.json {
		text = string(raw)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// upload uploads local files and returns their ids.
func upload(ctx context.Context, c *client, names []string) ([]berth.FileID, error) {
	var ids []berth.FileID
	for _, name := range names {
		var file berth.File
		if err := c.sendFile(ctx, "/v1/files", map[string]string{"purpose": "user_data"}, "file", name,
			&file); err != nil {
			return nil, err
		}
		ids = append(ids, file.ID)
	}
	return ids, nil
}

// follow creates a response and shows its events until it ends.
func follow(ctx context.Context, c *client, body map[string]any, p *progress) (*berth.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(string(raw)))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // if ctx ends, so does the connection, and with it the response
	defer p.end()
	p.request = resp.Header
	for frame, err := range sse.NewReader(resp.Body, maxEvent).Events() {
		if ctx.Err() != nil {
			p.end()
			fmt.Fprintln(os.Stderr, "berth: interrupted; the response is cancelled")
			if p.response != "" {
				fmt.Fprintln(os.Stderr, idLine(p.response, p.container))
				fmt.Fprintf(os.Stderr, "to go on: berth run --previous %s \"…\"\n", shortID(inLine(string(p.response))))
			}
			return nil, exitError(exitInterrupt)
		}
		if err != nil {
			return nil, fmt.Errorf("the stream was interrupted: %w", err)
		}
		var ev berth.Event
		if err := json.Unmarshal([]byte(frame.Data), &ev); err != nil {
			return nil, err
		}
		p.show(&ev)
		if ev.Type.Final() {
			return ev.Response, nil
		}
	}
	return nil, errors.New("the stream ended before the response did")
}

// idLine names a response and its container.
func idLine(id berth.ResponseID, container berth.ContainerID) string {
	line := "response " + inLine(string(id))
	if container != "" {
		line += "  container " + inLine(string(container))
	}
	return line
}

// answer returns the text of a response's messages, and why it is incomplete, if it is.
func answer(r *berth.Response) string {
	var texts []string
	for _, it := range r.Output {
		var m berth.Message
		if it.Type() != berth.ItemMessage || it.Status() != berth.StatusCompleted || it.Decode(&m) != nil {
			continue
		}
		for _, part := range m.Content {
			texts = append(texts, part.Text+part.Refusal)
		}
	}
	if r.IncompleteDetails != nil {
		texts = append(texts, fmt.Sprintf("incomplete: %s", r.IncompleteDetails.Reason))
	}
	return strings.Join(texts, "\n")
}

// hasCalls reports whether the response ran commands.
func hasCalls(r *berth.Response) bool {
	return slices.ContainsFunc(r.Output, func(it berth.Item) bool { return it.Type() == berth.ItemShellCall })
}

// containerOf returns the container of a response's shell, or the empty id.
func containerOf(r *berth.Response) (berth.ContainerID, error) {
	for _, t := range r.Tools {
		var shell berth.ShellTool
		if t.Type() == berth.ToolShell {
			if err := t.Decode(&shell); err != nil {
				return "", err
			}
			if shell.Environment != nil {
				return shell.Environment.ContainerID, nil
			}
		}
	}
	return "", nil
}

// isCode reports whether a tool is the code interpreter.
func isCode(tool map[string]any) bool { return tool["type"] == berth.ToolCode }
