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

// kindImport is the kind of object that names what an import is about to make. It is
// there before any of that and goes last, so that a server that dies in between knows
// at its next start what to remove.
const kindImport = store.KindImport

// An intent is what an import makes, none of which is anybody else's.
type intent struct {
	Files     []berth.FileID     `json:"files"`
	Snapshot  berth.SnapshotID   `json:"snapshot"`
	Container berth.ContainerID  `json:"container"`
	Responses []berth.ResponseID `json:"responses"` // the oldest first
}

// intend settles the ids of what the bundle brings, but for its responses, and saves them.
func (m *reading) intend(ctx context.Context) error {
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
	o := &store.Object{ObjectKey: store.ObjectKey{Kind: kindImport, ID: berth.NewID("import_")}, CreatedAt: now, ExpiresAt: now, Body: raw}
	if err := m.carrier.opts.Objects.CreateObjects(ctx, m.project, o); err != nil {
		return err
	}
	m.intent = o.ObjectKey
	return nil
}

// intendResponses adds the responses to what is made.
func (m *reading) intendResponses(ctx context.Context, ids []berth.ResponseID) error {
	m.making.Responses = ids
	raw, err := json.Marshal(m.making)
	if err != nil {
		return err
	}
	_, err = m.carrier.opts.Objects.UpdateObject(ctx, m.project, m.intent, func(o *store.Object) error {
		o.Body = raw
		return nil
	})
	return err
}

// settle makes what was imported the project's, for good.
func (m *reading) settle(ctx context.Context) error {
	return m.carrier.opts.Objects.DeleteObject(ctx, m.project, m.intent)
}

// undo removes what has been made. What that leaves goes at the server's next start.
func (m *reading) undo(ctx context.Context) {
	if m.intent.ID == "" {
		return
	}
	_ = m.carrier.remove(ctx, store.ObjectRef{Project: m.project, ObjectKey: m.intent}, m.making)
}

// remove removes all that an import has made, and then the record of that.
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

// recoverBatch is how many imports are looked at at once.
const recoverBatch = 100

// Recover removes what imports have left that a former process was in the middle of. It
// comes before the first Import.
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
				return fmt.Errorf("bundle: removing an import that was interrupted: %w", err)
			}
			log.Info("an import that was interrupted was removed", "project", ref.Project, "files", len(made.Files), "responses", len(made.Responses))
		}
		if len(refs) < recoverBatch {
			return nil
		}
	}
}
