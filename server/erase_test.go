package server

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// storedContainers is a container service without sandboxes.
type storedContainers struct{ *sqlite.DB }

func (s storedContainers) List(ctx context.Context, p berth.ProjectID, name string,
	page store.Page) ([]*berth.Container, bool, error) {
	recs, more, err := s.ListContainers(ctx, p, name, page)
	var list []*berth.Container
	for _, r := range recs {
		list = append(list, r.Body)
	}
	return list, more, err
}

func (s storedContainers) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	return s.DeleteContainer(ctx, p, id)
}

// storedResponses is a response service with one response that is not stored.
type storedResponses struct{ *sqlite.DB }

func (s storedResponses) Delete(ctx context.Context, c berth.Caller, id berth.ResponseID) error {
	if id == "resp_unstored" {
		return berth.Errorf(berth.CodeNotFound, "not kept")
	}
	return s.DeleteResponse(ctx, c.Project, id)
}

// An archived project has no data left, the audit record has one entry for it, and other projects
// keep their data.
func TestErase(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	db, err := state.OpenStore(ctx, dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	record, err := audit.Open(filepath.Join(dir, "audit"), log)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	stored := files.New(files.Options{Store: db, Contents: blobtest.New(t), Audit: record})
	parts := blobtest.New(t)
	large := uploads.New(uploads.Options{Objects: db, Contents: parts, Seal: seal.New([32]byte{}), Files: stored,
		Audit: record})
	folders := blobtest.New(t)
	taught := skills.New(skills.Options{Objects: db, Contents: folders, Seal: seal.New([32]byte{}), Audit: record})
	snapshots := snapshot.New(snapshot.Options{Objects: db, Contents: blobtest.New(t), Seal: seal.New([32]byte{}),
		Audit: record})
	volumes, err := volume.New(volume.Options{Dir: filepath.Join(dir, "volumes"), Objects: db,
		Seal: seal.New([32]byte{}), Audit: record})
	if err != nil {
		t.Fatal(err)
	}
	data := &erasable{db: db, containers: storedContainers{db}, responses: storedResponses{db},
		blobs: &blobs{files: stored, uploads: large, skills: taught, snapshots: snapshots, volumes: volumes}}
	projects := project.New(project.Options{Objects: db})
	e := &project.Eraser{Projects: projects, Sources: data.sources(), Audit: record}
	fill := func(p berth.ProjectID, tag string) {
		t.Helper()
		_, err1 := stored.Create(ctx, p, files.CreateRequest{Filename: "a"}, strings.NewReader("a"))
		err2 := snapshots.Create(ctx, p, &snapshot.Record{Snapshot: &berth.Snapshot{}}, func(w io.Writer) (layer.Made,
			error) {
			sum := sha256.New()
			err := tar.NewWriter(io.MultiWriter(w, sum)).Close()
			return layer.Made{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil))}, err
		})
		err3 := db.CreateContainer(ctx, &store.Container{Project: p,
			Body: &berth.Container{ID: berth.ContainerID("cntr_" + tag)}})
		err4 := db.CreateObjects(ctx, p,
			&store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversation, ID: "conv_1"}, Body: []byte("{}")})
		_, err6 := taught.Create(ctx, p, &oneFile{name: "SKILL.md", text: "---\nname: a\ndescription: d\n---\n"})
		part, err5 := large.Create(ctx, p, uploads.CreateRequest{Filename: "a", Purpose: "user_data", Bytes: 1})
		if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
			t.Fatal(err)
		}
		if _, err := large.AddPart(ctx, p, part.ID, strings.NewReader("a")); err != nil {
			t.Fatal(err)
		}
		req := &berth.ResponseRequest{Model: "m"}
		body := berth.NewResponse(berth.ResponseID("resp_"+tag), 1, req)
		if err := db.CreateResponse(ctx, &store.Response{Project: p, Request: req, Body: body}, nil,
			store.Lease{}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(p berth.ProjectID) int {
		t.Helper()
		responses, err1 := db.ProjectResponses(ctx, p, 100)
		objects, err2 := db.ProjectObjects(ctx, p, 100)
		containers, _, err3 := db.ListContainers(ctx, p, "", store.Page{Limit: 100})
		kept, _, err4 := db.ListFiles(ctx, p, "", store.Page{Limit: 100})
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		return len(responses) + len(objects) + len(containers) + len(kept)
	}
	fill("proj_old", "old")
	fill("proj_new", "new")
	if n := left("proj_old"); n != 7 {
		t.Fatalf("the project has %d objects: too few for this test", n)
	}
	for _, id := range []berth.ProjectID{"proj_old", "proj_new"} {
		if _, err := projects.Create(ctx, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := projects.Archive(ctx, "proj_old"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.EraseArchived(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if old, new := left("proj_old"), left("proj_new"); old != 0 || new != 7 {
		t.Errorf("objects: got %d in the archived project and %d in another, want 0 and 7", old, new)
	}
	for _, bucket := range []*blobtest.Storage{parts, folders} {
		for _, key := range bucket.Keys() {
			if strings.HasPrefix(key, "proj_old/") {
				t.Fatalf("content of a part or of a skill is left: %s", key)
			}
		}
	}
	if p, err := projects.Get(ctx, "proj_old"); err != nil || p.ErasedAt == nil || p.Status != berth.ProjectArchived {
		t.Errorf("got %+v, %v", p, err)
	}
	var entries []*audit.Entry
	for entry, err := range audit.Entries(filepath.Join(dir, "audit"), "") {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Action == audit.ProjectErased || entry.Action == audit.FileDeleted {
			entries = append(entries, entry)
		}
	}
	if len(entries) != 2 || entries[0].Action != audit.FileDeleted || entries[1].Project != "proj_old" ||
		entries[1].Count != 7 || entries[1].Reason != "archived" {
		t.Errorf("entries: got %+v, want one for the file and one for the project", entries)
	}
}

// A response with store: false does not stop the erasure of its project.
func TestEraseDuringResponse(t *testing.T) {
	ctx := t.Context()
	db, err := state.OpenStore(ctx, t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	req := &berth.ResponseRequest{Model: "m"}
	if err := db.CreateResponse(ctx, &store.Response{Project: "proj_old", Request: req,
		Body: berth.NewResponse("resp_unstored", 1, req)}, nil, store.Lease{}); err != nil {
		t.Fatal(err)
	}
	volumes, err := volume.New(volume.Options{Dir: t.TempDir(), Objects: db, Seal: seal.New([32]byte{})})
	if err != nil {
		t.Fatal(err)
	}
	data := &erasable{db: db, containers: storedContainers{db}, responses: storedResponses{db},
		blobs: &blobs{files: files.New(files.Options{Store: db, Contents: blobtest.New(t)}),
			skills:  skills.New(skills.Options{Objects: db, Contents: blobtest.New(t), Seal: seal.New([32]byte{})}),
			uploads: uploads.New(uploads.Options{Objects: db, Contents: blobtest.New(t), Seal: seal.New([32]byte{})}),
			snapshots: snapshot.New(snapshot.Options{Objects: db, Contents: blobtest.New(t),
				Seal: seal.New([32]byte{})}), volumes: volumes}}
	e := &project.Eraser{Sources: data.sources()}
	if n, err := e.Erase(ctx, "proj_old"); n != 0 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

// oneFile is the upload of a skill with one file.
type oneFile struct{ name, text string }

func (f *oneFile) Next() (string, string, io.Reader, error) {
	name := f.name
	if f.name = ""; name == "" {
		return "", "", nil, io.EOF
	}
	return name, "", strings.NewReader(f.text), nil
}
