package uploads

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
)

// A part is the body of an object of store.KindUploadPart.
type part struct {
	Part  berth.UploadPart `json:"part"`
	Bytes int64            `json:"bytes"`
	Key   []byte           `json:"key"` // of its content, sealed
}

func partKey(upload berth.UploadID, id berth.PartID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindUploadPart, Parent: string(upload), ID: string(id)}
}

// ref names the content of a part. Its id has the upload's before it.
func ref(p berth.ProjectID, upload berth.UploadID, id berth.PartID) blob.Ref {
	return blob.Ref{Project: p, ID: string(upload) + "." + string(id)}
}

// split is the reverse of ref.
func split(r blob.Ref) store.ObjectKey {
	upload, id, _ := strings.Cut(r.ID, ".")
	return partKey(berth.UploadID(upload), berth.PartID(id))
}

// AddPart stores the bytes of r as a part of an upload. It streams r. A part that alone is
// larger than the upload is refused.
func (s *Service) AddPart(ctx context.Context, p berth.ProjectID, upload berth.UploadID,
	r io.Reader) (*berth.UploadPart, error) {
	before, err := s.get(ctx, p, upload)
	if err == nil {
		err = before.pending()
	}
	if err != nil {
		return nil, err
	}
	it := &part{Part: berth.UploadPart{ID: berth.PartID(berth.NewID(berth.PrefixPart)), Object: "upload.part",
		CreatedAt: s.opts.Now().Unix(), UploadID: upload}}
	at, secret := ref(p, upload, it.Part.ID), blob.NewKey()
	it.Key = blob.SealKey(s.opts.Seal, secret[:], []byte(at.String()))
	err = s.parts.Create(ctx, blob.Creation{Ref: at,
		Admit: func(ctx context.Context) error { return s.quota(ctx, p, it.Bytes) },
		Write: func(ctx context.Context) error {
			return s.contents.Write(ctx, at, secret, func(w io.Writer) (err error) {
				limit := min(MaxPartBytes, before.Upload.Bytes)
				it.Bytes, err = io.Copy(w, io.LimitReader(r, limit+1))
				switch {
				case err != nil || it.Bytes <= limit:
					return err
				case limit < MaxPartBytes:
					return berth.Invalid("data",
						"This part is larger than the upload, which was created with 'bytes' %d. Create an upload with the size of the whole file.",
						limit)
				}
				return &berth.Error{Code: berth.CodeTooLarge, Param: "data",
					Message: fmt.Sprintf("The part is larger than the limit of %d bytes.", MaxPartBytes)}
			})
		},
		Save:  func(ctx context.Context) error { return s.savePart(ctx, p, it) },
		Entry: func() audit.Entry { return audit.Entry{} }})
	if err != nil {
		return nil, err
	}
	return &it.Part, nil
}

// savePart counts a part and then saves it. After a crash in between, too much is counted, until
// the upload ends.
func (s *Service) savePart(ctx context.Context, p berth.ProjectID, it *part) error {
	if _, err := s.update(ctx, p, it.Part.UploadID, func(r *record) error {
		if err := r.pending(); err != nil {
			return err
		}
		if r.Received+it.Bytes > MaxBytes || r.Parts == maxParts {
			return &berth.Error{Code: berth.CodeTooLarge, Param: "data",
				Message: fmt.Sprintf(
					"The parts of an upload must not exceed %d bytes and %d parts. Cancel the upload and create another.",
					int64(MaxBytes), maxParts)}
		}
		r.Parts, r.Received = r.Parts+1, r.Received+it.Bytes
		return nil
	}); err != nil {
		return err
	}
	body, err := json.Marshal(it)
	if err != nil {
		return fmt.Errorf("encode part: %w", err)
	}
	err = s.opts.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: partKey(it.Part.UploadID, it.Part.ID),
		CreatedAt: it.Part.CreatedAt, Body: body})
	if errors.Is(err, store.ErrNotFound) {
		return notFound(it.Part.UploadID)
	}
	return err
}

// erase deletes all parts of an upload.
func (s *Service) erase(ctx context.Context, p berth.ProjectID, id berth.UploadID, reason string) error {
	var bytes int64
	for {
		const batch = 1000
		list, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindUploadPart, string(id),
			store.Page{Limit: batch})
		if err != nil {
			return fmt.Errorf("list parts: %w", err)
		}
		for _, o := range list {
			var it part
			if err := json.Unmarshal(o.Body, &it); err != nil {
				return fmt.Errorf("decode part: %w", err)
			}
			at := ref(p, id, it.Part.ID)
			if err := (parts{s.opts.Objects}).Delete(ctx, at); err != nil && !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("delete part: %w", err)
			}
			if err := s.contents.Remove(ctx, at); err != nil {
				return err
			}
			bytes += it.Bytes
		}
		if !more {
			return s.opts.Audit.Commit(ctx, audit.Entry{Action: audit.UploadEnded, Project: p, Object: string(id),
				Reason: reason, Bytes: bytes})
		}
	}
}

// Complete joins parts of an upload, in the given order, to a file. sum is the MD5 of the file in
// hexadecimal digits, or empty. A completed upload is returned again.
func (s *Service) Complete(ctx context.Context, p berth.ProjectID, id berth.UploadID, ids []berth.PartID,
	sum string) (*berth.Upload, error) {
	release, err := s.acquire(id)
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := s.get(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if r.Upload.Status == berth.UploadCompleted {
		return &r.Upload, nil
	}
	if err := r.pending(); err != nil {
		return nil, err
	}
	f, err := s.opts.Files.Get(ctx, p, r.FileID) // made before a crash
	if berth.ErrorCode(err) == berth.CodeNotFound {
		f, err = s.join(ctx, p, r, ids, sum)
	}
	if err != nil {
		return nil, err
	}
	if r, err = s.end(ctx, p, id, berth.UploadCompleted, f); err != nil {
		return nil, err
	}
	return &r.Upload, nil
}

// join makes the file of an upload.
func (s *Service) join(ctx context.Context, p berth.ProjectID, r *record, ids []berth.PartID, sum string) (*berth.File,
	error) {
	list := make([]*part, len(ids))
	seen, total := map[berth.PartID]bool{}, int64(0)
	for i, id := range ids {
		o, err := s.opts.Objects.GetObject(ctx, p, partKey(r.Upload.ID, id))
		if errors.Is(err, store.ErrNotFound) || err == nil && seen[id] {
			return nil, berth.Invalid(fmt.Sprintf("part_ids[%d]", i),
				"Invalid 'part_ids[%d]': '%s' is not a part of this upload, or is listed twice.", i, id)
		}
		if err != nil {
			return nil, fmt.Errorf("read part: %w", err)
		}
		it := new(part)
		if err := json.Unmarshal(o.Body, it); err != nil {
			return nil, fmt.Errorf("decode part: %w", err)
		}
		list[i], seen[id], total = it, true, total+it.Bytes
	}
	if total != r.Upload.Bytes {
		return nil, berth.Invalid("part_ids",
			"The parts have %d bytes together, but the upload was created with %d bytes. Add the missing parts, or list others.",
			total, r.Upload.Bytes)
	}
	content := &joinedReader{open: func(it *part) (io.ReadCloser, error) { return s.open(ctx, p, it) }, rest: list}
	defer content.Close()
	in := io.Reader(content)
	if sum != "" {
		hash := md5.New() // a checksum that the client chose, not a protection
		in = &checkedReader{r: io.TeeReader(content, hash), check: func() error {
			if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, sum) {
				return berth.Invalid("md5",
					"The MD5 of the parts is %s, but the request has %s. Upload the damaged part again.", got, sum)
			}
			return nil
		}}
	}
	return s.opts.Files.Create(ctx, p, files.CreateRequest{ID: r.FileID, Filename: r.Upload.Filename,
		Purpose:             r.Upload.Purpose,
		ExpiresAfterSeconds: r.ExpiresAfter, MaxBytes: MaxBytes, Replaces: r.Received}, in)
}

func (s *Service) open(ctx context.Context, p berth.ProjectID, it *part) (io.ReadCloser, error) {
	at := ref(p, it.Part.UploadID, it.Part.ID)
	secret, err := blob.OpenKey(s.opts.Seal, it.Key, []byte(at.String()), len(blob.Key{}))
	if err != nil {
		return nil, fmt.Errorf("open part: %w", err)
	}
	return s.contents.OpenSeeker(ctx, at, blob.Key(secret), it.Bytes)
}

// joinedReader reads parts one after the other.
type joinedReader struct {
	open func(*part) (io.ReadCloser, error)
	rest []*part
	now  io.ReadCloser
}

func (j *joinedReader) Read(b []byte) (int, error) {
	for {
		if j.now == nil {
			if len(j.rest) == 0 {
				return 0, io.EOF
			}
			in, err := j.open(j.rest[0])
			if err != nil {
				return 0, err
			}
			j.now, j.rest = in, j.rest[1:]
		}
		n, err := j.now.Read(b)
		if err == io.EOF {
			err = j.Close()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (j *joinedReader) Close() error {
	if j.now == nil {
		return nil
	}
	in := j.now
	j.now = nil
	return in.Close()
}

// checkedReader reads r and returns the error of check in place of io.EOF.
type checkedReader struct {
	r     io.Reader
	check func() error
}

func (c *checkedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err == io.EOF {
		if failure := c.check(); failure != nil {
			err = failure
		}
	}
	return n, err
}

// parts adapts the objects of parts to records of blobs.
type parts struct{ objects store.Objects }

func (r parts) Delete(ctx context.Context, at blob.Ref) error {
	return r.objects.DeleteObject(ctx, at.Project, split(at))
}

func (r parts) Exists(ctx context.Context, at blob.Ref) (bool, error) {
	_, err := r.objects.GetObject(ctx, at.Project, split(at))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Expired returns nothing: parts expire with their upload.
func (r parts) Expired(context.Context, time.Time, int) ([]blob.Ref, error) { return nil, nil }
