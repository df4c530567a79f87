package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// kindImport is the kind of an object that records the ids of an import. It is stored
// before all that the import creates and deleted last. If the server dies in between, its
// next start removes the rest of the import.
const kindImport = store.KindImport

// An intent lists what an import creates.
type intent struct {
	Files     []berth.FileID     `json:"files"`
	Snapshot  berth.SnapshotID   `json:"snapshot"`
	Container berth.ContainerID  `json:"container"`
	Responses []berth.ResponseID `json:"responses"` // the oldest first
}

// intend chooses the ids of the import, except those of responses, and stores them.
func (m *importRun) intend(ctx context.Context) error {
	for _, f := range m.manifest.Files {
		id := berth.NewID(berth.PrefixFile)
		m.making.Files = append(m.making.Files, berth.FileID(id))
		m.ids[f.ID] = id
	}
	m.making.Snapshot = berth.SnapshotID(berth.NewID(berth.PrefixSnapshot))
	m.making.Container = berth.ContainerID(berth.NewID(berth.PrefixContainer))
	if k := m.manifest.Container; k != nil && k.Path != "" {
		m.ids[k.ID] = string(m.making.Container)
	}
	raw, err := json.Marshal(m.making)
	if err != nil {
		return err
	}
	now := time.Now().Unix()
	o := &store.Object{ObjectKey: store.ObjectKey{Kind: kindImport, ID: berth.NewID("import_")}, CreatedAt: now,
		ExpiresAt: now + int64(m.service.opts.Longest/time.Second), Body: raw}
	if err := m.service.opts.Objects.CreateObjects(ctx, m.project, o); err != nil {
		return err
	}
	m.intent = o.ObjectKey
	return nil
}

// intendResponses stores the ids of the responses.
func (m *importRun) intendResponses(ctx context.Context, ids []berth.ResponseID) error {
	m.making.Responses = ids
	raw, err := json.Marshal(m.making)
	if err != nil {
		return err
	}
	_, err = m.service.opts.Objects.UpdateObject(ctx, m.project, m.intent, func(o *store.Object) error {
		o.Body = raw
		return nil
	})
	return err
}

// settle completes the import by deleting its record.
func (m *importRun) settle(ctx context.Context) error {
	return m.service.opts.Objects.DeleteObject(ctx, m.project, m.intent)
}

// undo removes all that the import has created. If that fails, the next start of the
// server does it.
func (m *importRun) undo(ctx context.Context) {
	if m.intent.ID == "" {
		return
	}
	_ = m.service.remove(ctx, store.ObjectRef{Project: m.project, ObjectKey: m.intent}, m.making)
}

// remove deletes all that an import has created, and then its record.
func (c *Service) remove(ctx context.Context, ref store.ObjectRef, made intent) error {
	var failed error
	try := func(err error) {
		if !errors.Is(err, store.ErrNotFound) && berth.ErrorCode(err) != berth.CodeNotFound {
			failed = errors.Join(failed, err)
		}
	}
	for _, id := range slices.Backward(made.Responses) {
		try(c.opts.Responses.DeleteResponse(ctx, ref.Project, id))
	}
	try(c.opts.Containers.DeleteContainer(ctx, ref.Project, made.Container))
	if c.opts.Snapshots != nil {
		try(c.opts.Snapshots.Delete(ctx, ref.Project, made.Snapshot))
	}
	for _, id := range made.Files {
		try(c.opts.Files.Delete(ctx, ref.Project, id))
	}
	if failed == nil {
		try(c.opts.Objects.DeleteObject(ctx, ref.Project, ref.ObjectKey))
	}
	return failed
}

// recoverBatch is the number of imports that are listed at a time.
const recoverBatch = 100

// Recover removes the rests of imports that an earlier process has not completed. It must
// be called before the first Import, or with Options.Longest at any time.
func (c *Service) Recover(ctx context.Context, log *slog.Logger) error {
	for {
		refs, err := c.opts.Objects.ExpiredObjects(ctx, kindImport, time.Now(), recoverBatch)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			o, err := c.opts.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
			var made intent
			if err == nil {
				err = json.Unmarshal(o.Body, &made)
			}
			if err == nil {
				err = c.remove(ctx, ref, made)
			}
			if err != nil {
				return fmt.Errorf("remove interrupted import: %w", err)
			}
			log.Info("removed interrupted import", "project", ref.Project, "files", len(made.Files), "responses",
				len(made.Responses))
		}
		if len(refs) < recoverBatch {
			return nil
		}
	}
}
