package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
)

// An Export is a bundle that is ready to be written. The caller must close it.
type Export struct {
	Manifest Manifest

	service   *Service
	project   berth.ProjectID
	ctx       context.Context
	documents *documents      // the responses, in the manifest's order
	named     map[string]bool // files that the responses refer to, by id
	layer     *seal.Spool     // the container's, or nil
}

// Export collects the chain that ends with a response and, with withContainer, a snapshot
// of its container. It returns an error for the client if a response is in progress. ctx
// must last until the bundle has been written.
func (c *Service) Export(ctx context.Context, p berth.ProjectID, id berth.ResponseID, withContainer bool) (_ *Export,
	err error) {
	x := &Export{service: c, project: p, ctx: ctx, named: map[string]bool{},
		Manifest: Manifest{Format: Format, CreatedAt: time.Now().Unix(), Server: c.opts.Version}}
	defer func() {
		if err != nil {
			x.Close()
		}
	}()
	if x.documents, err = newDocuments(c.opts.SpoolDir); err != nil {
		return nil, err
	}
	links, err := c.opts.Responses.Chain(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Response", id)
	}
	if err != nil {
		return nil, err
	}
	var container berth.ContainerID
	for i, l := range links {
		rec, err := c.opts.Responses.GetResponse(ctx, p, l.ID)
		if err != nil {
			return nil, err
		}
		if !rec.Body.Store || !rec.Body.Status.Final() {
			return nil, &berth.Error{Code: berth.CodeConflict,
				Message: fmt.Sprintf("Response with id '%s' is still in progress. Wait for its end, or cancel it.",
					l.ID)}
		}
		if i == 0 {
			if err := x.before(ctx, rec); err != nil {
				return nil, err
			}
		}
		if err := x.add(ctx, rec); err != nil {
			return nil, err
		}
		container = cmp.Or(l.Container, container)
	}
	if err := x.files(ctx); err != nil {
		return nil, err
	}
	if withContainer && container != "" && c.opts.Snapshots != nil {
		if err := x.container(ctx, container); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// before adds the items that the chain's conversation had before its first response. It
// adds them as a response with those items as its input and no output.
func (x *Export) before(ctx context.Context, rec *store.Response) error {
	items, err := x.service.opts.Engine.Before(ctx, rec)
	if err != nil || len(items) == 0 {
		return err
	}
	req := &berth.ResponseRequest{Model: rec.Body.Model}
	body := berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), rec.Body.CreatedAt, req)
	body.Status, body.CompletedAt = berth.StatusCompleted, &rec.Body.CreatedAt
	ev, err := json.Marshal(berth.Event{Type: berth.EventCompleted, Response: body})
	if err != nil {
		return err
	}
	return x.put(body, req, items, []json.RawMessage{ev})
}

// eventPage is the number of events that are read at a time.
const eventPage = 1000

// add adds a response with its events.
func (x *Export) add(ctx context.Context, rec *store.Response) error {
	var events []json.RawMessage
	for after := int64(-1); ; {
		page, err := x.service.opts.Responses.Events(ctx, x.project, rec.Body.ID, after, eventPage)
		if err != nil {
			return err
		}
		for _, ev := range page {
			events = append(events, ev.Data)
			after = ev.SequenceNumber
		}
		if len(page) == 0 {
			return x.put(rec.Body, rec.Request, rec.Input, events)
		}
	}
}

func (x *Export) put(body *berth.Response, req *berth.ResponseRequest, input []berth.Item,
	events []json.RawMessage) error {
	r := response{Input: input, Events: events}
	var err error
	if r.Body, err = json.Marshal(body); err != nil {
		return err
	}
	if r.Request, err = json.Marshal(req); err != nil {
		return err
	}
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if doc, err = x.service.opts.Engine.Unseal(x.project, doc); err != nil {
		return fmt.Errorf("response %s: %w", body.ID, err)
	}
	sum := sha256.Sum256(doc)
	if err := x.documents.add(bytes.NewReader(doc)); err != nil {
		return err
	}
	for _, m := range fileID.FindAllSubmatch(doc, -1) {
		x.named[string(m[1])] = true
	}
	x.Manifest.Responses = append(x.Manifest.Responses, ManifestEntry{Path: fmt.Sprintf("responses/%05d.json",
		len(x.documents.ends)),
		ID: string(body.ID), Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: int64(len(doc))})
	return nil
}

var fileID = regexp.MustCompile(`"(file-[0-9a-f]{48})"`)

// files adds the uploaded files that the responses refer to, unless they were deleted.
func (x *Export) files(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(x.named)) {
		content, f, err := x.service.opts.Files.Open(ctx, x.project, berth.FileID(id))
		if berth.ErrorCode(err) == berth.CodeNotFound {
			continue
		}
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, content)
		content.Close()
		if err != nil {
			return err
		}
		x.Manifest.Files = append(x.Manifest.Files, ManifestFile{Filename: f.Filename, Purpose: f.Purpose,
			ManifestEntry: ManifestEntry{Path: "files/" + id, ID: id, Digest: "sha256:" +
				hex.EncodeToString(sum.Sum(nil)), Bytes: f.Bytes}})
	}
	return nil
}

// container adds the container with a new snapshot or, if it has ended, with its last one.
func (x *Export) container(ctx context.Context, id berth.ContainerID) error {
	o := x.service.opts
	rec, err := o.Containers.GetContainer(ctx, x.project, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	b := rec.Body
	m := &ManifestContainer{ManifestEntry: ManifestEntry{ID: string(id)}, Template: b.Berth.Template,
		MemoryLimit: b.MemoryLimit, ExpiresAfter: b.ExpiresAfter, Network: b.NetworkPolicy}
	x.Manifest.Container = m
	last := b.Berth.LastSnapshot
	if b.Status == berth.ContainerRunning {
		s, err := o.ContainerService.Snapshots().Take(ctx, x.project, id, container.SnapshotRequest{Name: "export"})
		if err != nil {
			return err
		}
		defer o.Snapshots.Delete(context.WithoutCancel(ctx), x.project, s.ID)
		last = s.ID
	}
	if last == "" {
		return nil
	}
	snap, err := o.Snapshots.Record(ctx, x.project, last)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return x.spool(ctx, m, snap)
}

// spool writes a snapshot's content to a temporary file, so that its length is known.
func (x *Export) spool(ctx context.Context, m *ManifestContainer, rec *snapshot.Record) error {
	content, err := x.service.opts.Snapshots.Open(ctx, x.project, rec)
	if err != nil {
		return err
	}
	defer content.Close()
	if x.layer, err = seal.NewSpool(x.service.opts.SpoolDir); err != nil {
		return err
	}
	sum := sha256.New()
	packed, err := zstd.NewWriter(io.MultiWriter(x.layer, sum), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if _, err := io.Copy(packed, content); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	m.Bytes = x.layer.Size()
	m.Path, m.Digest, m.Layer, m.Files = "container/layer.tar.zst", "sha256:"+hex.EncodeToString(sum.Sum(nil)),
		rec.Snapshot.Digest, rec.Files
	m.Skills = withoutIDs(rec.Skills)
	m.Template = rec.Snapshot.Template
	return nil
}

// WriteTo writes the bundle, once.
func (x *Export) WriteTo(w io.Writer) (int64, error) {
	count := &counter{w: w}
	err := x.write(tar.NewWriter(count))
	return count.n, err
}

func (x *Export) write(out *tar.Writer) error {
	manifest, err := json.MarshalIndent(x.Manifest, "", "  ")
	if err != nil {
		return err
	}
	at := time.Unix(x.Manifest.CreatedAt, 0)
	put := func(name string, size int64, content io.Reader) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: at}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.CopyN(out, content, size)
		return err
	}
	if err := put("manifest.json", int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	for i, e := range x.Manifest.Responses {
		doc, err := x.documents.open(i)
		if err != nil {
			return err
		}
		if err := put(e.Path, e.Bytes, doc); err != nil {
			return err
		}
	}
	for _, f := range x.Manifest.Files {
		content, _, err := x.service.opts.Files.Open(x.ctx, x.project, berth.FileID(f.ID))
		if err != nil {
			return err
		}
		err = put(f.Path, f.Bytes, content)
		content.Close()
		if err != nil {
			return err
		}
	}
	if x.layer != nil {
		layer, err := x.layer.Content()
		if err != nil {
			return err
		}
		if err := put(x.Manifest.Container.Path, x.Manifest.Container.Bytes, layer); err != nil {
			return err
		}
	}
	return out.Close()
}

// Close removes the temporary files.
func (x *Export) Close() error {
	var err error
	if x.documents != nil {
		err = x.documents.Close()
	}
	if x.layer != nil {
		err = errors.Join(err, x.layer.Close())
	}
	return err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
