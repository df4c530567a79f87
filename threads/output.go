package threads

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"

	"golang.org/x/sync/singleflight"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
)

// An output is what a run makes and the Assistants API shows as an uploaded file: an image
// that code displayed, or a file of the container that a message cites.
type output struct {
	id   berth.FileID
	name string
	open func(context.Context) (io.ReadCloser, error)
}

// ContainerFiles opens files of containers; *container.Files implements it.
type ContainerFiles interface {
	Open(ctx context.Context, p berth.ProjectID, id berth.ContainerID, file berth.CFileID) (io.ReadCloser,
		*berth.ContainerFile, error)
}

// imageID returns the id of the file for an image: output n of a call, which is the item at
// index of its response.
func imageID(r berth.ResponseID, index, n int) berth.FileID {
	return outputID(fmt.Sprintf("%s/%d/%d", r, index, n))
}

// citedID returns the id of the copy of a container's file that a response cites.
func citedID(r berth.ResponseID, file string) berth.FileID { return outputID(string(r) + "/" + file) }

func outputID(of string) berth.FileID {
	sum := sha256.Sum256([]byte(of))
	return berth.FileID(berth.PrefixFile + hex.EncodeToString(sum[:24]))
}

// codeCall returns the call of an item that is complete, or nil.
func codeCall(it berth.Item) *berth.CodeInterpreterCall {
	var call berth.CodeInterpreterCall
	if it.Type() != berth.ItemCodeInterpreterCall || it.Status() != berth.StatusCompleted || it.Decode(&call) != nil {
		return nil
	}
	return &call
}

// An outputStore saves the outputs of runs as files. It is safe for concurrent use.
type outputStore struct {
	objects        store.Objects
	files          Files
	containerFiles ContainerFiles
	log            *slog.Logger
	saving         singleflight.Group // of outputs, by project and file
}

// of returns the outputs of a response so far.
func (s *outputStore) of(p berth.ProjectID, leg *berth.Response) []output {
	var all []output
	for i, it := range leg.Output {
		if call := codeCall(it); call != nil {
			all = append(all, images(leg.ID, i, call)...)
		}
		var m berth.Message
		if it.Type() != berth.ItemMessage || it.Status() == berth.StatusInProgress || it.Decode(&m) != nil {
			continue
		}
		for _, c := range m.Content {
			for _, a := range citationsOf(c) {
				if a.Type != containerFileCitation {
					continue
				}
				all = append(all, output{citedID(leg.ID, a.FileID), a.Filename,
					func(ctx context.Context) (io.ReadCloser, error) {
						content, _, err := s.containerFiles.Open(ctx, p, a.ContainerID, berth.CFileID(a.FileID))
						return content, err
					}})
			}
		}
	}
	return all
}

// images returns the images that a call displayed.
func images(r berth.ResponseID, index int, call *berth.CodeInterpreterCall) []output {
	var all []output
	for n, o := range call.Outputs {
		media, data, ok := strings.Cut(strings.TrimPrefix(o.URL, "data:image/"), ";base64,")
		if o.Type != "image" || !ok {
			continue
		}
		id := imageID(r, index, n)
		all = append(all, output{id, string(id) + "." + media, func(context.Context) (io.ReadCloser, error) {
			raw, err := base64.StdEncoding.DecodeString(data)
			return io.NopCloser(bytes.NewReader(raw)), err
		}})
	}
	return all
}

// save saves the outputs of a run's last leg as files and records which of them
// exist. It logs one that cannot be saved, for example because the container has ended or
// the project is full; steps and messages leave that one out.
func (s *outputStore) save(ctx context.Context, c berth.Caller, r *Record, leg *berth.Response) error {
	var saved map[berth.FileID]bool
	for _, o := range s.of(c.Project, leg) {
		if _, known := r.Files[o.id]; known {
			continue
		}
		err := s.saveOne(ctx, c.Project, o)
		if _, lost := errors.AsType[*lostError](err); !lost && berth.ErrorCode(err) == berth.CodeInternal {
			return fmt.Errorf("save output of run: %w", err)
		}
		if err != nil {
			s.log.Warn("failed to save an output of a run", "run", r.Run.ID, "name", o.name, "request_id", c.RequestID,
				"err", err)
		}
		if saved == nil {
			saved = map[berth.FileID]bool{}
		}
		saved[o.id] = err == nil
	}
	if saved == nil {
		return nil
	}
	changed, err := update(ctx, s.objects, c.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		if r.Files == nil {
			r.Files = map[berth.FileID]bool{}
		}
		maps.Copy(r.Files, saved)
		return nil
	})
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil // the thread has been deleted
	}
	if err == nil {
		r.Files = changed.Files
	}
	return err
}

// saveOne saves an output, unless another request has.
func (s *outputStore) saveOne(ctx context.Context, p berth.ProjectID, o output) error {
	ctx = context.WithoutCancel(ctx)
	_, err, _ := s.saving.Do(string(p)+"/"+string(o.id), func() (any, error) {
		if _, err := s.files.Get(ctx, p, o.id); berth.ErrorCode(err) != berth.CodeNotFound {
			return nil, err
		}
		content, err := o.open(ctx)
		if err != nil {
			return nil, &lostError{err}
		}
		defer content.Close()
		source := &sourceReader{Reader: content}
		_, err = s.files.Create(ctx, p, files.CreateRequest{ID: o.id, Filename: o.name,
			Purpose: files.PurposeAssistantsOutput}, source)
		if source.err != nil {
			return nil, &lostError{source.err}
		}
		return nil, err
	})
	return err
}

// A lostError states why the content of an output cannot be read.
type lostError struct{ err error }

func (e *lostError) Error() string { return "read output: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// A sourceReader records the error of its Reader.
type sourceReader struct {
	io.Reader
	err error
}

func (r *sourceReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}
