package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/store"
)

// Options are a Service's parts. All except Now are required.
type Options struct {
	Objects        store.Objects
	Responses      store.Responses
	Engine         *engine.Engine
	Journal        *journal.Journal // the engine's journal
	Files          Files
	ContainerFiles ContainerFiles
	VectorStores   VectorStores
	Log            *slog.Logger
	Now            func() time.Time // default time.Now
}

// Files stores the uploaded files; *files.Service implements it.
type Files interface {
	Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error)
	Create(ctx context.Context, p berth.ProjectID, req files.CreateRequest, content io.Reader) (*berth.File, error)
}

// A Service stores threads and runs assistants on them. It is safe for concurrent use. Its
// errors for clients are *berth.Error. Objects of other projects are not found.
type Service struct {
	Options
	Catalog   *Catalog // of assistants
	resources *resourceStore
	outputs   *outputStore
}

// New returns a service.
func New(opts Options) *Service {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	resources := &resourceStore{opts.Objects, opts.Files, opts.VectorStores, opts.Log}
	return &Service{Options: opts, Catalog: &Catalog{opts.Objects, resources, opts.Now}, resources: resources,
		outputs: &outputStore{objects: opts.Objects, files: opts.Files, containerFiles: opts.ContainerFiles,
			log: opts.Log}}
}

// objectOf returns the stored object with the JSON of v.
func objectOf(kind store.Kind, parent, id string, createdAt int64, v any) (*store.Object, error) {
	body, err := json.Marshal(v)
	return &store.Object{ObjectKey: store.ObjectKey{Kind: kind, Parent: parent, ID: id}, CreatedAt: createdAt,
		Body: body}, err
}

// what holds the names of kinds for messages.
var what = map[store.Kind]string{kindAssistant: "assistant", kindThread: "thread", kindMessage: "message",
	kindRun: "run"}

// get reads an object.
func get[T any](ctx context.Context, objects store.Objects, p berth.ProjectID, key store.ObjectKey) (*T, error) {
	o, err := objects.GetObject(ctx, p, key)
	if err != nil {
		return nil, absent(err, key)
	}
	return decode[T](o)
}

func decode[T any](o *store.Object) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(o.Body, v); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.Kind, o.ID, err)
	}
	return v, nil
}

func absent(err error, key store.ObjectKey) error {
	if errors.Is(err, store.ErrNotFound) {
		return notFound(what[key.Kind], key.ID)
	}
	return err
}

// list reads a page of objects.
func list[T any](ctx context.Context, objects store.Objects, p berth.ProjectID, kind store.Kind, parent string,
	page store.Page) ([]*T, bool, error) {
	found, more, err := objects.ListObjects(ctx, p, kind, parent, page)
	if err != nil {
		return nil, false, err
	}
	out := make([]*T, len(found))
	for i, o := range found {
		if out[i], err = decode[T](o); err != nil {
			return nil, false, err
		}
	}
	return out, more, nil
}

// update changes an object in one transaction.
func update[T any](ctx context.Context, objects store.Objects, p berth.ProjectID, key store.ObjectKey,
	change func(*T) error) (*T, error) {
	var v *T
	_, err := objects.UpdateObject(ctx, p, key, func(o *store.Object) error {
		var err error
		if v, err = decode[T](o); err != nil {
			return err
		}
		if err := change(v); err != nil {
			return err
		}
		o.Body, err = json.Marshal(v)
		return err
	})
	if err != nil {
		return nil, absent(err, key)
	}
	return v, nil
}

// remove deletes an object.
func remove(ctx context.Context, objects store.Objects, p berth.ProjectID, key store.ObjectKey) error {
	return absent(objects.DeleteObject(ctx, p, key), key)
}

// patched returns v with the fields of a request, a JSON object, set. A field that is null
// in the request is cleared, unless keep contains it.
func patched[T any](v *T, request json.RawMessage, keep ...string) (*T, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fields, changes := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(raw, &fields), json.Unmarshal(request, &changes)); err != nil {
		return nil, err
	}
	for _, name := range keep {
		if string(changes[name]) == "null" {
			delete(changes, name)
		}
	}
	for name, value := range changes {
		fields[name] = value
	}
	if raw, err = json.Marshal(fields); err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return out, nil
}

// A metadataRequest changes only the metadata of a message or a run.
type metadataRequest struct {
	Metadata map[string]string `json:"metadata"`
}

func metadataOf(request json.RawMessage) (map[string]string, error) {
	var m metadataRequest
	if err := json.Unmarshal(request, &m); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	return m.Metadata, nil
}
