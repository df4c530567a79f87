package uploads_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const mine berth.ProjectID = "proj_mine"

type house struct {
	*uploads.Service
	t       *testing.T
	files   *files.Service
	objects brittle
	bucket  *blobtest.Storage
	now     time.Time
}

// brittle is a store whose updates of objects fail while broken is set.
type brittle struct {
	store.Store
	broken *bool
}

var errBroken = errors.New("broken")

func (b brittle) UpdateObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey,
	change func(*store.Object) error) (*store.Object, error) {
	if *b.broken {
		return nil, errBroken
	}
	return b.Store.UpdateObject(ctx, p, key, change)
}

func newHouse(t *testing.T) *house {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	check(t, err)
	parts, whole := blobtest.New(t), blobtest.New(t)
	t.Cleanup(func() {
		db.Close()
	})
	h := &house{t: t, files: files.New(files.Options{Store: db, Contents: whole, MaxBytes: 4}),
		objects: brittle{db, new(bool)}, bucket: parts, now: time.Now()}
	h.Service = uploads.New(uploads.Options{Objects: h.objects, Contents: parts, Seal: seal.New([32]byte{1}),
		Files: h.files, Now: func() time.Time {
			return h.now
		}})
	return h
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start creates an upload of "canary", with its part.
func (h *house) start() (berth.UploadID, []berth.PartID) {
	h.t.Helper()
	u, err := h.Create(h.t.Context(), mine, uploads.CreateRequest{Filename: "a", Purpose: "user_data", Bytes: 6})
	check(h.t, err)
	part, err := h.AddPart(h.t.Context(), mine, u.ID, strings.NewReader("canary"))
	check(h.t, err)
	return u.ID, []berth.PartID{part.ID}
}

// contents fails the test unless the bucket has want parts, and the project stores bytes.
func (h *house) contents(want int, bytes int64) {
	h.t.Helper()
	keys := h.bucket.Keys()
	for _, key := range keys {
		if raw := h.bucket.Get(key); strings.Contains(string(raw), "canary") {
			h.t.Errorf("%s is stored as %q", key, raw)
		}
	}
	stored, err := uploads.StoredBytes(h.t.Context(), h.objects, mine)
	if len(keys) != want || stored != bytes || err != nil {
		h.t.Errorf("got %d parts and %d bytes, %v, want %d and %d", len(keys), stored, err, want, bytes)
	}
}

// A crash after the file was made, before the upload knew it, makes no second file. The file may
// be larger than those of one request.
func TestCompleteAfterCrash(t *testing.T) {
	h := newHouse(t)
	id, parts := h.start()
	h.contents(1, 6)
	*h.objects.broken = true
	if _, err := h.Complete(t.Context(), mine, id, parts, ""); !errors.Is(err, errBroken) {
		t.Fatalf("got %v, want the store's error", err)
	}
	*h.objects.broken = false
	if _, err := h.Cancel(t.Context(), mine, id); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("cancel after the file was made: got %v", err)
	}
	u, err := h.Complete(t.Context(), mine, id, parts, "")
	check(t, err)
	list, _, err := h.files.List(t.Context(), mine, "", store.Page{Limit: 10})
	if len(list) != 1 || err != nil || u.File == nil || u.File.ID != list[0].ID || u.Status != berth.UploadCompleted {
		t.Errorf("got %+v and files %v, %v, want one file", u, list, err)
	}
	h.contents(0, 0)
}

// An upload expires after an hour, with its parts. A part without a record is swept.
func TestExpire(t *testing.T) {
	h := newHouse(t)
	id, parts := h.start()
	h.bucket.Put("proj_mine/"+string(id)+".part_lost", []byte("x"))
	check(t, h.Sweep(t.Context()))
	h.contents(1, 6)
	check(t, h.Expire(t.Context(), h.now.Add(59*time.Minute)))
	h.contents(1, 6)
	h.now = h.now.Add(time.Hour)
	if _, err := h.Complete(t.Context(), mine, id, parts, ""); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("complete after an hour: got %v, want not found", err)
	}
	check(t, h.Expire(t.Context(), h.now))
	h.contents(0, 0)
	if ids, err := h.List(t.Context(), mine, 10); len(ids) != 0 || err != nil {
		t.Errorf("got uploads %v, %v, want none", ids, err)
	}
}

// A part that fails while it is received leaves nothing.
func TestBrokenPart(t *testing.T) {
	h := newHouse(t)
	id, _ := h.start()
	in, out := io.Pipe()
	out.CloseWithError(errBroken)
	if _, err := h.AddPart(t.Context(), mine, id, in); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want the reader's error", err)
	}
	h.contents(1, 6)
	if _, err := h.AddPart(t.Context(), "proj_theirs", id, strings.NewReader("x")); berth.ErrorCode(
		err) != berth.CodeNotFound {
		t.Errorf("another project: got %v, want not found", err)
	}
	h.contents(1, 6)
}

// A part that is larger than the whole upload is refused before it is completed.
func TestPartLargerThanUpload(t *testing.T) {
	h := newHouse(t)
	id, _ := h.start()
	_, err := h.AddPart(t.Context(), mine, id, strings.NewReader("larger than 6 bytes"))
	if berth.ErrorCode(err) != berth.CodeInvalid || !strings.Contains(err.Error(), "'bytes'") {
		t.Errorf("got %v", err)
	}
	h.contents(1, 6)
}

// A damaged part is not joined.
func TestDamagedPart(t *testing.T) {
	h := newHouse(t)
	id, parts := h.start()
	key := "proj_mine/" + string(id) + "." + string(parts[0])
	raw := h.bucket.Get(key)
	raw[0] ^= 1
	h.bucket.Put(key, raw)
	if _, err := h.Complete(t.Context(), mine, id, parts, ""); berth.ErrorCode(err) != berth.CodeCorrupt {
		t.Errorf("got %v, want that it is damaged", err)
	}
	if list, _, err := h.files.List(t.Context(), mine, "", store.Page{Limit: 10}); len(list) != 0 || err != nil {
		t.Errorf("got files %v, %v, want none", list, err)
	}
}
