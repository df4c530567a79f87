package vectorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A segment is a stored part of a file's text.
type segment struct {
	First   int      `json:"first"` // the number of its first chunk in the file
	Chunks  []string `json:"chunks"`
	Vectors []byte   `json:"vectors,omitempty"` // of the chunks, as little-endian float32
}

// texts stores the text of files, in segments. It is safe for concurrent use.
type texts struct {
	objects store.Objects
	now     func() time.Time
}

// create stores a segment of a file.
func (t *texts) create(ctx context.Context, k jobKey, n int, seg *segment) error {
	body, err := json.Marshal(seg)
	if err != nil {
		return fmt.Errorf("encode text of file: %w", err)
	}
	o := &store.Object{ObjectKey: segmentKey(k.store, k.file, n), CreatedAt: t.now().Unix(), Body: body}
	if err := t.objects.CreateObjects(ctx, k.project, o); err != nil {
		return fmt.Errorf("save text of file: %w", err)
	}
	return nil
}

// set replaces a segment of a file.
func (t *texts) set(ctx context.Context, k jobKey, n int, seg *segment) error {
	body, err := json.Marshal(seg)
	if err != nil {
		return fmt.Errorf("encode text of file: %w", err)
	}
	_, err = t.objects.UpdateObject(ctx, k.project, segmentKey(k.store, k.file, n), func(o *store.Object) error {
		o.Body = body
		return nil
	})
	if err != nil {
		return fmt.Errorf("save vectors of file: %w", err)
	}
	return nil
}

// get reads a part of a file's text.
func (t *texts) get(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID,
	n int) (*segment, error) {
	o, err := t.objects.GetObject(ctx, p, segmentKey(id, file, n))
	if err != nil {
		return nil, fmt.Errorf("read text of file %s: %w", file, err)
	}
	seg := &segment{}
	if err := json.Unmarshal(o.Body, seg); err != nil {
		return nil, fmt.Errorf("decode text of file %s: %w", file, err)
	}
	return seg, nil
}

func segmentKey(id berth.VectorStoreID, file berth.FileID, n int) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindVectorText, Parent: string(id), ID: fmt.Sprintf("%s.%d", file, n)}
}

// delete deletes the stored text of a file: n parts, and what an interrupted reading
// left above them.
func (t *texts) delete(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID,
	n int) error {
	remove := func(n int) error {
		err := t.objects.DeleteObject(ctx, p, segmentKey(id, file, n))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("delete text of file %s: %w", file, err)
		}
		return err
	}
	for last := n; ; last++ {
		if err := remove(last); errors.Is(err, store.ErrNotFound) {
			break
		} else if err != nil {
			return err
		}
	}
	for i := n - 1; i >= 0; i-- { // the first part last, so that a repetition finds the others
		if err := remove(i); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}
