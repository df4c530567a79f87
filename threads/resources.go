package threads

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/vectorstore"
)

// Resources are the files and vector stores that tools may use.
type Resources struct {
	CodeInterpreter *CodeResources   `json:"code_interpreter,omitempty"`
	FileSearch      *SearchResources `json:"file_search,omitempty"`
}

// CodeResources are the files in the container of a code interpreter.
type CodeResources struct {
	FileIDs []berth.FileID `json:"file_ids"`
}

// SearchResources are the vector stores that a file search searches.
type SearchResources struct {
	VectorStoreIDs []berth.VectorStoreID `json:"vector_store_ids"`
	VectorStores   []NewVectorStore      `json:"vector_stores,omitempty"` // of a request; resolve replaces them by ids
}

// A NewVectorStore describes a vector store that a request creates.
type NewVectorStore struct {
	FileIDs          []berth.FileID          `json:"file_ids"`
	ChunkingStrategy *berth.ChunkingStrategy `json:"chunking_strategy"`
	Metadata         map[string]string       `json:"metadata"`
}

const (
	MaxCodeFiles  = 20               // of an assistant or a thread, as at OpenAI
	searchExpiry  = 7                // days after its last use, of a vector store for attachments
	indexPatience = time.Minute      // for which a run waits until its vector stores are read
	indexPoll     = time.Second / 10 // between two looks at them
)

// VectorStores creates and checks vector stores; *vectorstore.Service implements it.
type VectorStores interface {
	Check(ctx context.Context, p berth.ProjectID, ids []berth.VectorStoreID) error
	Get(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) (*berth.VectorStore, error)
	Create(ctx context.Context, p berth.ProjectID, req vectorstore.CreateRequest) (*berth.VectorStore, error)
	AddFile(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
		req vectorstore.FileRequest) (*berth.VectorStoreFile, error)
	Delete(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) error
}

// A resourceStore checks and creates resources. It is safe for concurrent use.
type resourceStore struct {
	objects      store.Objects
	files        Files
	vectorStores VectorStores
	log          *slog.Logger
}

// newStores are the vector stores that were created for a request.
type newStores []berth.VectorStoreID

// discard deletes the stores of a request that was refused with err. After an internal error
// an object that names them may have been saved, so they remain.
func (s *resourceStore) discard(ctx context.Context, p berth.ProjectID, made newStores, err error) {
	if code := berth.ErrorCode(err); code == "" || code == berth.CodeInternal {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, id := range made {
		if err := s.vectorStores.Delete(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			s.log.Error("failed to delete a vector store of a refused request", "vector_store", id, "err", err)
		}
	}
}

// discardOf is discard for stores that are resources of a stored thread.
func (s *resourceStore) discardOf(ctx context.Context, p berth.ProjectID, thread string, made newStores, err error) {
	if code := berth.ErrorCode(err); len(made) == 0 || code == "" || code == berth.CodeInternal {
		return
	}
	_, failed := update(context.WithoutCancel(ctx), s.objects, p, threadKey(thread), func(t *Thread) error {
		if f := t.ToolResources.FileSearch; f != nil {
			f.VectorStoreIDs = slices.DeleteFunc(f.VectorStoreIDs, func(id berth.VectorStoreID) bool {
				return slices.Contains(made, id)
			})
		}
		return nil
	})
	if failed != nil && berth.ErrorCode(failed) != berth.CodeNotFound {
		s.log.Error("failed to remove a vector store from a thread after a refused request", "thread", thread, "err",
			failed)
		return
	}
	s.discard(ctx, p, made, err)
}

// complete makes missing lists empty.
func (r *Resources) complete() {
	if c := r.CodeInterpreter; c != nil {
		c.FileIDs = orEmpty(c.FileIDs)
	}
	if f := r.FileSearch; f != nil {
		f.VectorStoreIDs = orEmpty(f.VectorStoreIDs)
	}
}

// resolve checks the resources of a request and creates the vector stores that it describes,
// which it appends to made. made may be nil if the rule of the request allows none. at is the
// field of the request.
func (s *resourceStore) resolve(ctx context.Context, p berth.ProjectID, r *Resources, at string,
	made *newStores) error {
	r.complete()
	if c := r.CodeInterpreter; c != nil {
		for i, id := range c.FileIDs {
			if err := s.checkFile(ctx, p, id, fmt.Sprintf("%s.code_interpreter.file_ids[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	f := r.FileSearch
	if f == nil {
		return nil
	}
	if err := s.vectorStores.Check(ctx, p, f.VectorStoreIDs); berth.ErrorCode(err) == berth.CodeNotFound {
		return berth.Invalid(at+".file_search.vector_store_ids", "%v", err)
	} else if err != nil {
		return err
	}
	for i, v := range f.VectorStores {
		for n, id := range v.FileIDs {
			if err := s.checkFile(ctx, p, id, fmt.Sprintf("%s.file_search.vector_stores[%d].file_ids[%d]", at, i,
				n)); err != nil {
				return err
			}
		}
		created, err := s.vectorStores.Create(ctx, p, vectorstore.CreateRequest{FileIDs: v.FileIDs,
			ChunkingStrategy: v.ChunkingStrategy, Metadata: v.Metadata})
		if err != nil {
			return err
		}
		*made = append(*made, created.ID)
		f.VectorStoreIDs = append(f.VectorStoreIDs, created.ID)
	}
	f.VectorStores = nil
	return nil
}

// checkFile returns an error for the client, about the field at, unless the file exists.
func (s *resourceStore) checkFile(ctx context.Context, p berth.ProjectID, id berth.FileID, at string) error {
	_, err := s.files.Get(ctx, p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return berth.Invalid(at, "No file found with id '%s'.", rule.Clip(string(id)))
	}
	return err
}

// checkFiles refuses a message that refers to a file that does not exist.
func (s *resourceStore) checkFiles(ctx context.Context, p berth.ProjectID, req *MessageRequest, at string) error {
	named := req.files()
	for _, param := range slices.Sorted(maps.Keys(named)) {
		if err := s.checkFile(ctx, p, named[param], at+param); err != nil {
			return err
		}
	}
	return nil
}

// code returns the files for the code interpreter.
func (r *Resources) code() []berth.FileID {
	if r.CodeInterpreter == nil {
		return nil
	}
	return r.CodeInterpreter.FileIDs
}

// search returns the vector stores for the file search.
func (r *Resources) search() []berth.VectorStoreID {
	if r.FileSearch == nil {
		return nil
	}
	return r.FileSearch.VectorStoreIDs
}

// with returns the resources of both, each once.
func (r Resources) with(more Resources) Resources {
	var all Resources
	if r.CodeInterpreter != nil || more.CodeInterpreter != nil {
		all.CodeInterpreter = &CodeResources{union(r.code(), more.code())}
	}
	if r.FileSearch != nil || more.FileSearch != nil {
		all.FileSearch = &SearchResources{VectorStoreIDs: union(r.search(), more.search())}
	}
	return all
}

func union[T comparable](a, b []T) []T {
	all := append([]T{}, a...)
	for _, v := range b {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// attach returns the resources of a thread with the attachments of new messages added. The
// files for the file search are in a vector store of the thread, which attach creates, and
// appends to made, if there is none.
func (s *resourceStore) attach(ctx context.Context, p berth.ProjectID, r Resources, reqs []MessageRequest,
	made *newStores) (Resources, error) {
	var code, search []berth.FileID
	for _, req := range reqs {
		for _, a := range req.Attachments {
			for _, t := range a.Tools {
				switch t.Type() {
				case berth.ToolCode:
					code = append(code, a.FileID)
				case berth.ToolFileSearch:
					search = append(search, a.FileID)
				}
			}
		}
	}
	var more Resources
	if len(code) > 0 {
		more.CodeInterpreter = &CodeResources{code}
		if n := len(union(r.code(), code)); n > MaxCodeFiles {
			return r, berth.Invalid("attachments",
				"This thread would have %d files for the code interpreter; %d are allowed. Remove files from its 'tool_resources', or use another thread.",
				n, MaxCodeFiles)
		}
	}
	search = union(nil, search)
	switch stores := r.search(); {
	case len(search) == 0:
	case len(stores) > 0:
		for _, id := range search {
			if _, err := s.vectorStores.AddFile(ctx, p, stores[0], vectorstore.FileRequest{FileID: id}); err != nil {
				return r, err
			}
		}
	default:
		v, err := s.vectorStores.Create(ctx, p, vectorstore.CreateRequest{FileIDs: search,
			ExpiresAfter: &berth.VectorExpiry{Anchor: "last_active_at", Days: searchExpiry}})
		if err != nil {
			return r, err
		}
		*made = append(*made, v.ID)
		more.FileSearch = &SearchResources{VectorStoreIDs: []berth.VectorStoreID{v.ID}}
	}
	return r.with(more), nil
}

// attachTo adds the attachments of new messages to the resources of a stored thread. It
// appends vector stores that it creates to made.
func (s *resourceStore) attachTo(ctx context.Context, p berth.ProjectID, t *Thread, reqs []MessageRequest,
	made *newStores) error {
	if !slices.ContainsFunc(reqs, func(r MessageRequest) bool { return len(r.Attachments) > 0 }) {
		return nil
	}
	added, err := s.attach(ctx, p, t.ToolResources, reqs, made)
	if err != nil {
		return err
	}
	changed, err := update(ctx, s.objects, p, threadKey(t.ID), func(t *Thread) error {
		t.ToolResources = t.ToolResources.with(added)
		return nil
	})
	if err == nil {
		*t = *changed
	}
	return err
}

// awaitIndex waits until the files of a run's vector stores are read, for at most a minute.
func (s *resourceStore) awaitIndex(ctx context.Context, p berth.ProjectID, r *Resources) error {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	tick := time.NewTicker(indexPoll)
	defer tick.Stop()
	for _, id := range r.search() {
		for {
			v, err := s.vectorStores.Get(ctx, p, id)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if err != nil || v.FileCounts.InProgress == 0 {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}
