package vectorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A record is the stored form of a file of a vector store.
type record struct {
	File     berth.VectorStoreFile `json:"file"`
	Filename string                `json:"filename"`
	Batch    berth.FileBatchID     `json:"batch,omitempty"`
	Segments int                   `json:"segments"`        // stored parts of its text
	Model    string                `json:"model,omitempty"` // that made its vectors
}

// records stores the records of files. It is safe for concurrent use.
type records struct {
	objects store.Objects
	queue   *queue
}

// create saves the record of a file that is to be read, and its job.
func (l *records) create(ctx context.Context, p berth.ProjectID, r *record, known bool) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode file of vector store: %w", err)
	}
	id := r.File.VectorStoreID
	job := l.queue.object(jobKey{p, id, r.File.ID})
	objects := []*store.Object{{ObjectKey: fileKey(id, r.File.ID), CreatedAt: r.File.CreatedAt, Body: body}, job}
	if known {
		if err := l.save(ctx, p, r); err != nil {
			return err
		}
		objects = objects[1:]
	}
	err = l.objects.CreateObjects(ctx, p, objects...)
	switch {
	case errors.Is(err, store.ErrExists) && known:
		_, err = l.objects.UpdateObject(ctx, p, job.ObjectKey, func(o *store.Object) error {
			o.ExpiresAt, o.Body = job.ExpiresAt, job.Body // it may have been postponed
			return nil
		})
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("add file to vector store %s: %w", id, err)
	case errors.Is(err, store.ErrNotFound):
		return berth.NotFound("Vector store", id)
	case err != nil:
		return fmt.Errorf("add file to vector store %s: %w", id, err)
	}
	return nil
}

// save saves the record of a file.
func (l *records) save(ctx context.Context, p berth.ProjectID, r *record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode file of vector store: %w", err)
	}
	_, err = l.objects.UpdateObject(ctx, p, fileKey(r.File.VectorStoreID, r.File.ID), func(o *store.Object) error {
		o.Body = body
		return nil
	})
	if err != nil {
		return fmt.Errorf("save file %s of vector store: %w", r.File.ID, err)
	}
	return nil
}

func fileKey(id berth.VectorStoreID, file berth.FileID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindVectorFile, Parent: string(id), ID: string(file)}
}
