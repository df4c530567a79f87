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
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/store"
)

// An Imported is the result of an import.
type Imported struct {
	Object      string            `json:"object"`      // "response.bundle"
	ResponseID  berth.ResponseID  `json:"response_id"` // the last of the chain
	Responses   int               `json:"responses"`
	Files       int               `json:"files"`
	ContainerID berth.ContainerID `json:"container_id,omitempty"` // empty if the bundle had no container content
	SnapshotID  berth.SnapshotID  `json:"snapshot_id,omitempty"`  // from which the container continues
	Template    string            `json:"template,omitempty"`     // digest of the container's template
	Missing     bool              `json:"template_missing,omitempty"`
}

// invalid returns an error for the client about a malformed bundle.
func invalid(format string, args ...any) error {
	return berth.Invalid("bundle", "The bundle cannot be read: "+format+".", args...)
}

// Import reads a bundle into a project, completely or not at all. The last response can
// then be continued like any other. Its container is created again from the snapshot when
// a response first uses it.
func (c *Service) Import(ctx context.Context, caller berth.Caller, r io.Reader) (_ *Imported, err error) {
	m := &importRun{service: c, ctx: ctx, held: c.opts.Decoding.Open(string(caller.Project)), project: caller.Project,
		in: tar.NewReader(r), ids: map[string]string{}}
	defer m.held.Close()
	defer func() {
		if err != nil {
			m.undo(context.WithoutCancel(ctx))
		}
	}()
	if m.chain, err = newDocuments(c.opts.SpoolDir); err != nil {
		return nil, err
	}
	defer m.chain.Close()
	if err := m.readManifest(); err != nil {
		return nil, err
	}
	for _, e := range m.manifest.Responses {
		if err := m.readResponse(e); err != nil {
			return nil, err
		}
	}
	if err := m.intend(ctx); err != nil {
		return nil, err
	}
	for i, f := range m.manifest.Files {
		if err := m.readFile(ctx, f, m.making.Files[i]); err != nil {
			return nil, err
		}
	}
	if k := m.manifest.Container; k != nil && k.Path != "" {
		if err := m.readContainer(ctx, k); err != nil {
			return nil, err
		}
	}
	if _, err := m.in.Next(); !errors.Is(err, io.EOF) {
		return nil, invalid("it has more content than its manifest lists")
	}
	if err := m.save(ctx, caller); err != nil {
		return nil, err
	}
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	return &m.done, nil
}

// An importRun is an import in progress. It is for one goroutine.
type importRun struct {
	service  *Service
	ctx      context.Context
	held     *ration.Account // of decoded content
	project  berth.ProjectID
	in       *tar.Reader
	manifest Manifest
	ids      map[string]string // new identifiers, by those of the bundle
	chain    *documents

	intent    store.ObjectKey // of making; zero until that is stored
	making    intent
	container *berth.Container
	done      Imported
}

func (m *importRun) readManifest() error {
	h, err := m.in.Next()
	if err != nil || h.Name != "manifest.json" || h.Size > maxManifest {
		return invalid("it does not start with a manifest")
	}
	text, err := io.ReadAll(m.in)
	if err != nil {
		return invalid("it ends in its manifest")
	}
	if err := m.reserve(text, maxManifestValues); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &m.manifest); err != nil {
		return invalid("its manifest is not JSON")
	}
	switch {
	case m.manifest.Format != Format:
		return invalid("its format is '%.64s', and must be '%s'", m.manifest.Format, Format)
	case len(m.manifest.Responses) == 0 || len(m.manifest.Responses) > maxResponses:
		return invalid("it has %d responses", len(m.manifest.Responses))
	}
	var all int64
	for _, e := range m.manifest.Responses {
		if e.Bytes < 0 || e.Bytes > maxResponse {
			return invalid("a response has %d bytes", e.Bytes)
		}
		if all += e.Bytes; all > maxDocuments {
			return invalid("its responses have more than %d bytes", int64(maxDocuments))
		}
	}
	if quota := m.service.opts.Quota; quota != nil {
		if err := quota(m.ctx, m.project, all); err != nil {
			return err
		}
	}
	if m.manifest.Container != nil {
		return m.manifest.Container.check()
	}
	return nil
}

// reserve checks the limits of a JSON text and reserves memory for decoding it. It returns
// the memory of the text before to the pool.
func (m *importRun) reserve(text []byte, maxValues int) error {
	values, err := jsonscan.Check(text, maxValues, maxDepth)
	if err != nil {
		return invalid("%v", err)
	}
	m.held.Return(m.held.Needs())
	return m.held.Reserve(m.ctx, 8*int64(len(text))+100*int64(values))
}

// next returns the content of the manifest's next entry. Reading it fails at the end unless
// it has the length and digest of the entry.
func (m *importRun) next(e ManifestEntry) (io.Reader, error) {
	h, err := m.in.Next()
	if err != nil {
		return nil, invalid("it ends before %.100s", e.Path)
	}
	if h.Typeflag != tar.TypeReg || h.Name != e.Path || h.Size != e.Bytes {
		return nil, invalid("it has %.100s of %d bytes in place of %.100s of %d bytes", h.Name, h.Size, e.Path, e.Bytes)
	}
	return &checkedReader{r: m.in, entry: e, sum: sha256.New()}, nil
}

// A checkedReader reader reads an entry and checks its digest at the end.
type checkedReader struct {
	r     io.Reader
	entry ManifestEntry
	sum   interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.sum.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if got := "sha256:" + hex.EncodeToString(c.sum.Sum(nil)); got != c.entry.Digest {
			return n, invalid("%.100s does not match its digest", c.entry.Path)
		}
		return n, io.EOF
	}
	if err != nil {
		err = invalid("it ends in %.100s", c.entry.Path)
	}
	return n, err
}

func (m *importRun) readResponse(e ManifestEntry) error {
	r, err := m.next(e)
	if err != nil {
		return err
	}
	return m.chain.add(r)
}

func (m *importRun) readFile(ctx context.Context, f ManifestFile, id berth.FileID) error {
	r, err := m.next(f.ManifestEntry)
	if err != nil {
		return err
	}
	_, err = m.service.opts.Files.Create(ctx, m.project, files.CreateRequest{ID: id, Filename: f.Filename,
		Purpose: f.Purpose}, r)
	return err
}

func (m *importRun) readContainer(ctx context.Context, k *ManifestContainer) error {
	o := m.service.opts
	if o.Snapshots == nil {
		return berth.Invalid("bundle",
			"This server does not store snapshots, and the bundle has one. Export it without its container.")
	}
	r, err := m.next(k.ManifestEntry)
	if err != nil {
		return err
	}
	id := m.making.Container
	snap := &snapshot.Record{Files: k.Files, Skills: k.Skills,
		Snapshot: &berth.Snapshot{ID: m.making.Snapshot, ContainerID: id, Name: "import", Cause: berth.SnapshotImported,
			Template: k.Template}}
	if err := o.Snapshots.Create(ctx, m.project, snap, func(w io.Writer) (layer.Made, error) {
		return unpack(w, r, k.Layer)
	}); err != nil {
		return err
	}
	now := time.Now().Unix()
	m.container = &berth.Container{ID: id, Object: "container", CreatedAt: now, LastActiveAt: now,
		Status: berth.ContainerExpired,
		Name:   "import", MemoryLimit: k.MemoryLimit, ExpiresAfter: k.ExpiresAfter,
		// without secrets
		NetworkPolicy: berth.NetworkPolicy{Type: k.Network.Type, AllowedDomains: k.Network.AllowedDomains,
			AllowedRequests: k.Network.AllowedRequests, Denied: k.Network.Denied},
		Berth: berth.ContainerBerth{Template: k.Template, Reason: "imported", LastSnapshot: snap.Snapshot.ID}}
	m.done.SnapshotID, m.done.ContainerID, m.done.Template = snap.Snapshot.ID, id, k.Template
	m.done.Missing = o.Templates != nil && !o.Templates(ctx, m.project, k.Template)
	return nil
}

// unpack decompresses a layer into w and checks it. digest is that of the uncompressed
// layer.
func unpack(w io.Writer, packed io.Reader, digest string) (made layer.Made, err error) {
	plain, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return made, fmt.Errorf("decompress: %w", err)
	}
	defer plain.Close()
	sum := sha256.New()
	all := io.TeeReader(io.LimitReader(plain, maxLayer), io.MultiWriter(w, sum))
	for in := tar.NewReader(all); ; made.Entries++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return made, invalid("its layer is malformed: %v", err)
		}
		if err := layer.Check(h); err != nil {
			return made, invalid("its layer cannot be applied: %v", err)
		}
		if made.Entries >= layer.DefaultMaxEntries {
			return made, invalid("its layer has more than %d entries", layer.DefaultMaxEntries)
		}
		if made.Bytes += h.Size; made.Bytes < 0 || made.Bytes > maxLayer { // a sparse file counts its apparent size
			return made, invalid("its layer has more than %d bytes", int64(maxLayer))
		}
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return made, err
	}
	if _, err := io.Copy(io.Discard, packed); err != nil { // checks the digest of the entry at its end
		return made, err
	}
	if made.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil)); made.Digest != digest {
		return made, invalid("its layer does not match its digest")
	}
	return made, nil
}

// save stores the container's object and the responses, the oldest first.
func (m *importRun) save(ctx context.Context, caller berth.Caller) error {
	o := m.service.opts
	select { // one import at a time, because a decoded response takes much memory
	case m.service.saving <- struct{}{}:
		defer func() { <-m.service.saving }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	all := len(m.manifest.Responses)
	var previous berth.ResponseID
	seen := make(map[berth.ResponseID]bool, all)
	var ids []berth.ResponseID
	for i := range all { // check all of them before the first is written
		rec, _, err := m.record(i, previous)
		if err != nil {
			return err
		}
		if previous = rec.Body.ID; seen[previous] {
			return invalid("it has a response twice")
		}
		seen[previous] = true
		ids = append(ids, previous)
	}
	if err := m.intendResponses(ctx, ids); err != nil {
		return err
	}
	if m.container != nil {
		if err := o.Containers.CreateContainer(ctx, &store.Container{Project: m.project, Key: caller.Key,
			Body: m.container}); err != nil {
			return err
		}
	}
	previous = ""
	for i := range all {
		rec, events, err := m.record(i, previous)
		if err != nil {
			return err
		}
		if m.container != nil && i == all-1 {
			rec.Container = m.container.ID
		}
		rec.Key, rec.RequestID = caller.Key, caller.RequestID
		if err := o.Responses.CreateResponse(ctx, rec, events, store.Lease{}); err != nil {
			return err
		}
		previous = rec.Body.ID
	}
	m.done.Object, m.done.ResponseID, m.done.Responses, m.done.Files = "response.bundle", previous, all,
		len(m.making.Files)
	return nil
}

// record returns a response of the bundle as it is stored here, with its events. previous
// is the response that it continues, or empty.
func (m *importRun) record(i int, previous berth.ResponseID) (*store.Response, []store.Event, error) {
	doc, err := m.chain.read(i)
	if err != nil {
		return nil, nil, err
	}
	rec, events, err := m.recordOf(doc, previous)
	if err != nil {
		err = fmt.Errorf("%s: %w", m.manifest.Responses[i].Path, err)
	}
	return rec, events, err
}

func (m *importRun) recordOf(doc []byte, previous berth.ResponseID) (*store.Response, []store.Event, error) {
	if err := m.reserve(doc, maxResponseValues); err != nil {
		return nil, nil, err
	}
	var r struct {
		Body, Request, Input json.RawMessage
		Events               []json.RawMessage
	}
	if err := json.Unmarshal(doc, &r); err != nil {
		return nil, nil, invalid("a response is not valid JSON")
	}
	rec := &store.Response{Project: m.project, Body: &berth.Response{}, Request: &berth.ResponseRequest{}}
	var input []berth.Item
	err := cmp.Or(m.decode(r.Body, rec.Body), m.decode(r.Request, rec.Request), m.decode(r.Input, &input))
	if err != nil {
		return nil, nil, err
	}
	b := rec.Body
	if !b.Status.Final() || !madeID.MatchString(string(b.ID)) || len(r.Events) == 0 {
		return nil, nil, invalid("a response has not ended, has no valid id, or has no events")
	}
	rec.Input, b.Store, b.Conversation, b.PreviousResponseID = input, true, nil, nil
	if previous != "" {
		b.PreviousResponseID = &previous
	}
	rec.Request.Conversation, rec.Request.PreviousResponseID = nil, previous
	events := make([]store.Event, 0, len(r.Events))
	for n, data := range r.Events {
		if data, err = m.translate(data); err != nil {
			return nil, nil, err
		}
		r.Events[n] = nil // frees the memory of the original
		var ev berth.Event
		if err := json.Unmarshal(data, &ev); err != nil || ev.SequenceNumber != int64(n) ||
			ev.Type.Final() != (n == len(r.Events)-1) {
			return nil, nil, invalid("event %d of response %s is out of order", n, b.ID)
		}
		events = append(events, store.Event{SequenceNumber: int64(n), Type: ev.Type, Data: data})
	}
	return rec, events, nil
}

// decode reads a part of a document into v.
func (m *importRun) decode(part json.RawMessage, v any) error {
	if len(part) == 0 {
		return nil
	}
	part, err := m.translate(part)
	if err != nil {
		return err
	}
	if json.Unmarshal(part, v) != nil {
		return invalid("a response is not valid JSON")
	}
	return nil
}

// translate returns a part of a document with identifiers of this server, and with sealed
// content.
func (m *importRun) translate(part json.RawMessage) (json.RawMessage, error) {
	// Check first, because the decoded part takes much more memory than the text.
	if _, err := jsonscan.Check(part, maxPartValues, maxDepth); err != nil {
		return nil, invalid("%v", err)
	}
	part, err := m.rename(part)
	if err != nil {
		return nil, err
	}
	return m.service.opts.Engine.Seal(m.project, part)
}

// rename replaces each identifier that a server has made by a new one, the same one
// everywhere in the bundle.
func (m *importRun) rename(doc []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, invalid("a response is not JSON")
	}
	return json.Marshal(m.renamed(tree))
}

func (m *importRun) renamed(node any) any {
	switch n := node.(type) {
	case []any:
		for i := range n {
			n[i] = m.renamed(n[i])
		}
	case map[string]any:
		for k := range n {
			n[k] = m.renamed(n[k])
		}
	case string:
		made := madeID.FindStringSubmatch(n)
		if made == nil {
			return n
		}
		if m.ids[n] == "" {
			m.ids[n] = berth.NewID(made[1])
		}
		return m.ids[n]
	}
	return node
}
