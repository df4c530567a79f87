package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// exportVersion is the version of the form of an export, which docs/export.md describes.
const exportVersion = 1

// An exportKind is a kind of object that an export has in a directory of its own.
type exportKind struct {
	name string // the directory
	path string // of the list; an object is below it
	user string // the type of an end user's object, if users have objects of this kind

	after string // the parameter for the next page of the list; default: after
	parts []exportPart
}

// An exportPart is what an object has besides its record.
type exportPart struct {
	name string // of the file: ID.NAME; a list ends in .jsonl
	path string // below the object's path, perhaps with a query

	unless []string // the statuses of the object in which it has no such part
}

var exportKinds = []exportKind{
	{name: "responses", path: "/v1/responses", user: "response",
		parts: []exportPart{{name: "input_items.jsonl", path: "/input_items"}}},
	{name: "conversations", path: "/v1/conversations", user: "conversation",
		parts: []exportPart{{name: "items.jsonl", path: "/items"}}},
	{name: "chat_completions", path: "/v1/chat/completions", user: "chat.completion",
		parts: []exportPart{{name: "messages.jsonl", path: "/messages"}}},
	{name: "assistants", path: "/v1/assistants"},
	{name: "threads", path: "/v1/threads",
		parts: []exportPart{{name: "messages.jsonl", path: "/messages"}, {name: "runs.jsonl", path: "/runs"}}},
	{name: "files", path: "/v1/files", user: "file", parts: []exportPart{{name: "content", path: "/content"}}},
	{name: "vector_stores", path: "/v1/vector_stores", parts: []exportPart{{name: "files.jsonl", path: "/files"}}},
	{name: "batches", path: "/v1/batches"},
	{name: "message_batches", path: "/v1/messages/batches", after: "after_id",
		parts: []exportPart{{name: "results.ndjson", path: "/results", unless: []string{"in_progress", "canceling"}}}},
	{name: "prompts", path: "/v1/prompts", parts: []exportPart{{name: "versions.jsonl", path: "/versions"}}},
	{name: "skills", path: "/v1/skills",
		parts: []exportPart{{name: "versions.jsonl", path: "/versions"}, {name: "zip", path: "/content"}}},
	{name: "schedules", path: "/v1/schedules", parts: []exportPart{{name: "runs.jsonl", path: "/runs"}}},
	{name: "containers", path: "/v1/containers", user: "container",
		parts: []exportPart{{name: "logs.jsonl", path: "/logs"},
			{name: "files.tar", path: "/archive?format=tar", unless: []string{"expired"}}}},
	{name: "snapshots", path: "/v1/snapshots"},
	{name: "volumes", path: "/v1/volumes"},
	{name: "traces", path: "/v1/traces", user: "trace", parts: []exportPart{{name: "spans.jsonl", path: "/spans"}}},
	{name: "end_users", path: "/v1/end_users"},
	{name: "webhook_endpoints", path: "/v1/webhook_endpoints"},
	{name: "ssh_keys", path: "/v1/ssh_keys"},
	{name: "holds", path: "/v1/holds"},
}

// An exportSummary is the file export.json, which is written last: an export without it was interrupted.
type exportSummary struct {
	Object     string           `json:"object"` // "export"
	Version    int              `json:"version"`
	Server     string           `json:"server"`             // its URL
	Subject    string           `json:"subject"`            // the id of the project, or of the end user
	StartedAt  int64            `json:"started_at"`         // Unix seconds
	FinishedAt int64            `json:"finished_at"`        // Unix seconds
	Objects    map[string]int64 `json:"objects"`            // by directory
	Failures   []exportFailure  `json:"failures,omitempty"` // the missing files
}

// An exportFailure says which file an export lacks.
type exportFailure struct {
	File  string `json:"file"`
	Error string `json:"error"`
}

// An exporter writes objects that a server has into a directory.
type exporter struct {
	client  *client
	root    *os.Root
	sums    bytes.Buffer // as sha256sum prints them
	summary exportSummary
	report  io.Writer // of progress
}

// export makes a directory with what write exports.
func export(cmd *cobra.Command, c *client, dir, subject string, write func(*exporter) error) error {
	e, err := newExporter(c, dir, subject, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer e.root.Close()
	if err := write(e); err != nil {
		return fmt.Errorf("%w; %s is not a whole export", err, dir)
	}
	return e.finish()
}

// newExporter makes the directory, or uses an empty one.
func newExporter(c *client, dir, subject string, report io.Writer) (*exporter, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	has, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(has) > 0 {
		return nil, fmt.Errorf("%s is not empty; name a new directory", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &exporter{client: c, root: root, report: report, summary: exportSummary{Object: "export",
		Version: exportVersion, Server: c.base, Subject: subject, StartedAt: time.Now().Unix(),
		Objects: map[string]int64{}}}, nil
}

// project exports all objects that the client's key can read.
func (e *exporter) project(ctx context.Context) error {
	for _, kind := range exportKinds {
		err := e.each(ctx, kind.path, cmp.Or(kind.after, "after"), func(o json.RawMessage) error {
			return e.object(ctx, kind, idOf(o))
		})
		if err != nil {
			return fmt.Errorf("export %s: %w", kind.name, err)
		}
		e.progress(kind.name)
	}
	return nil
}

// user exports what belongs to the end user at a path.
func (e *exporter) user(ctx context.Context, path string) error {
	users := exportKind{name: "end_users", path: "/v1/end_users",
		parts: []exportPart{{name: "usage.json", path: "/usage"}}}
	if err := e.object(ctx, users, path[strings.LastIndexByte(path, '/')+1:]); err != nil {
		return err
	}
	err := e.each(ctx, path+"/objects", "after", func(o json.RawMessage) error {
		var owned struct{ ID, Type string }
		if err := json.Unmarshal(o, &owned); err != nil {
			return err
		}
		i := slices.IndexFunc(exportKinds, func(k exportKind) bool { return k.user != "" && k.user == owned.Type })
		if i < 0 {
			e.fail(owned.ID, fmt.Errorf("this version of berth does not know objects of the type %q", owned.Type))
			return nil
		}
		return e.object(ctx, exportKinds[i], owned.ID)
	})
	if err != nil {
		return fmt.Errorf("export what belongs to the end user: %w", err)
	}
	snapshots := exportKinds[slices.IndexFunc(exportKinds, func(k exportKind) bool { return k.name == "snapshots" })]
	err = e.each(ctx, snapshots.path, "after", func(o json.RawMessage) error {
		var s struct {
			ID      string
			EndUser string `json:"end_user"`
		}
		if err := json.Unmarshal(o, &s); err != nil || s.EndUser != e.summary.Subject {
			return err
		}
		return e.object(ctx, snapshots, s.ID)
	})
	if err != nil {
		return fmt.Errorf("export snapshots of the end user: %w", err)
	}
	for _, kind := range exportKinds {
		e.progress(kind.name)
	}
	return nil
}

func (e *exporter) progress(name string) {
	if n := e.summary.Objects[name]; n > 0 {
		fmt.Fprintf(e.report, "%-18s %d\n", name, n)
	}
}

// finish writes the checksums and the summary. It returns an error if something is missing.
func (e *exporter) finish() error {
	e.summary.FinishedAt = time.Now().Unix()
	text, err := json.MarshalIndent(e.summary, "", "  ")
	if err != nil {
		return err
	}
	if err := e.save("export.json", bytes.NewReader(append(text, '\n'))); err != nil {
		return err
	}
	if _, err := saveIn(e.root, "SHA256SUMS", &e.sums, 0o600, false); err != nil {
		return err
	}
	if n := len(e.summary.Failures); n > 0 {
		return fmt.Errorf("%d files are missing; export.json names them, such as %s: %s", n,
			inLine(e.summary.Failures[0].File), inLine(e.summary.Failures[0].Error))
	}
	return nil
}

// exportable matches ids that are names of files. Clients choose the ids of traces.
var exportable = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$`)

// object exports an object with its parts. One that has been deleted is skipped; what cannot be read for
// another reason is a failure in the summary.
func (e *exporter) object(ctx context.Context, kind exportKind, id string) error {
	if !exportable.MatchString(id) {
		e.fail(kind.name+"/"+id, errors.New("the id is no name of a file"))
		return nil
	}
	if e.summary.Objects[kind.name] == 0 {
		if err := e.root.Mkdir(kind.name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	path, file := kind.path+"/"+url.PathEscape(id), kind.name+"/"+id
	record, err := e.read(ctx, path)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return e.failed(ctx, file+".json", err)
	}
	if err := e.save(file+".json", bytes.NewReader(record)); err != nil {
		return err
	}
	e.summary.Objects[kind.name]++
	var state struct {
		Status     string
		Processing string `json:"processing_status"` // of a batch of messages
	}
	_ = json.Unmarshal(record, &state) // an object without a status has all parts
	for _, part := range kind.parts {
		if slices.Contains(part.unless, cmp.Or(state.Status, state.Processing)) {
			continue
		}
		name := file + "." + part.name
		if err := e.failed(ctx, name, e.part(ctx, path+part.path, name)); err != nil {
			return err
		}
	}
	return nil
}

// failed notes an error of the server for the summary, also in the middle of an answer. It returns others, which end
// the export.
func (e *exporter) failed(ctx context.Context, file string, err error) error {
	_, answered := errors.AsType[*apiError](err)
	if err == nil || ctx.Err() != nil || !answered && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	e.fail(file, err)
	return nil
}

func (e *exporter) fail(file string, err error) {
	e.summary.Failures = append(e.summary.Failures, exportFailure{file, err.Error()})
}

// part exports a list as lines of JSON, and anything else as it is.
func (e *exporter) part(ctx context.Context, path, file string) error {
	if !strings.HasSuffix(file, ".jsonl") {
		resp, err := e.client.do(ctx, "GET", path, "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return e.save(file, resp.Body)
	}
	from, to := io.Pipe()
	go func() {
		to.CloseWithError(e.each(ctx, path, "after", func(o json.RawMessage) error {
			var line bytes.Buffer
			if err := json.Compact(&line, o); err != nil {
				return err
			}
			_, err := to.Write(append(line.Bytes(), '\n'))
			return err
		}))
	}()
	defer from.Close()
	return e.save(file, from)
}

// each calls f with each object of a list.
func (e *exporter) each(ctx context.Context, path, cursor string, f func(json.RawMessage) error) error {
	for page, err := range pages[json.RawMessage](ctx, e.client, path, cursor) {
		if err != nil {
			return err
		}
		for _, o := range page {
			if err := f(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns an answer of JSON.
func (e *exporter) read(ctx context.Context, path string) (json.RawMessage, error) {
	var body json.RawMessage
	err := e.client.call(ctx, "GET", path, nil, &body)
	return body, err
}

// save writes a file and notes its checksum.
func (e *exporter) save(file string, body io.Reader) error {
	sum := sha256.New()
	if _, err := saveIn(e.root, file, io.TeeReader(body, sum), 0o600, false); err != nil { // may contain private data
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Fprintf(&e.sums, "%x  %s\n", sum.Sum(nil), file)
	return nil
}

func idOf(o json.RawMessage) string {
	var has struct{ ID string }
	_ = json.Unmarshal(o, &has) // no id is refused as the name of a file
	return has.ID
}
