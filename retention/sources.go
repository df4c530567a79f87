package retention

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Remove has what deletes the objects of each kind, as clients do.
type Remove struct {
	Containers    func(context.Context, berth.ProjectID, berth.ContainerID) error
	Snapshots     func(context.Context, berth.ProjectID, berth.SnapshotID) error
	Files         func(context.Context, berth.ProjectID, berth.FileID) error
	Responses     func(context.Context, berth.Caller, berth.ResponseID) error
	Conversations func(context.Context, berth.Caller, berth.ConversationID) error
	Completions   func(context.Context, berth.ProjectID, string) error
	Threads       func(context.Context, berth.Caller, string) error
	Traces        func(context.Context, berth.ProjectID, string) error
}

// Sources returns the sources of the objects of a store.
func Sources(db store.Store, r Remove) map[berth.Retained]Source {
	return map[berth.Retained]Source{
		berth.RetainedContainerLogs:   {Due: logs(db), Remove: removeLog(db)},
		berth.RetainedContainers:      {Due: containers(db), Remove: inProject(r.Containers)},
		berth.RetainedSnapshots:       {Due: objects(db, store.KindSnapshot), Remove: inProject(r.Snapshots)},
		berth.RetainedResponses:       {Due: responses(db), Remove: byCaller(r.Responses)},
		berth.RetainedConversations:   {Due: objects(db, store.KindConversation), Remove: byCaller(r.Conversations)},
		berth.RetainedChatCompletions: {Due: objects(db, store.KindCompletion), Remove: inProject(r.Completions)},
		berth.RetainedThreads:         {Due: objects(db, store.KindThread), Remove: byCaller(r.Threads)},
		berth.RetainedFiles:           {Due: files(db), Remove: inProject(r.Files)},
		berth.RetainedTraces:          {Due: objects(db, store.KindTrace), Remove: inProject(r.Traces)},
	}
}

// removeLog deletes an entry of the log of a container.
func removeLog(db store.Objects) func(context.Context, berth.Caller, string) error {
	return func(ctx context.Context, c berth.Caller, id string) error {
		container, entry, _ := strings.Cut(id, "/")
		return db.DeleteObject(ctx, c.Project, store.ObjectKey{Kind: store.KindContainerLog, Parent: container,
			ID: entry})
	}
}

func inProject[ID ~string](remove func(context.Context, berth.ProjectID, ID) error) func(context.Context, berth.Caller,
	string) error {
	return func(ctx context.Context, c berth.Caller, id string) error { return remove(ctx, c.Project, ID(id)) }
}

func byCaller[ID ~string](remove func(context.Context, berth.Caller, ID) error) func(context.Context, berth.Caller,
	string) error {
	return func(ctx context.Context, c berth.Caller, id string) error { return remove(ctx, c, ID(id)) }
}

// A due is the function Due of a Source.
type due func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) (ids []string,
	next string, err error)

// An aged is an object with its age.
type aged struct {
	id      string
	created int64
	keep    bool // it has not ended
}

// select returns the ids of those of a page that were created before a moment. All lists are in the order of creation.
func selectDue(page []aged, more bool, before time.Time) (ids []string, next string) {
	for _, o := range page {
		if o.created >= before.Unix() {
			return ids, ""
		}
		if next = o.id; !o.keep {
			ids = append(ids, o.id)
		}
	}
	if !more {
		next = ""
	}
	return ids, next
}

// objects lists objects of a kind.
func objects(db store.Objects, kind store.Kind) due {
	return func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) ([]string, string,
		error) {
		list, more, err := db.ListObjects(ctx, p, kind, "", store.Page{Limit: limit, After: after, Ascending: true})
		if err != nil {
			return nil, "", err
		}
		page := make([]aged, len(list))
		for i, o := range list {
			page[i] = aged{id: o.ID, created: o.CreatedAt}
		}
		ids, next := selectDue(page, more, before)
		return ids, next, nil
	}
}

func files(db store.Files) due {
	return func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) ([]string, string,
		error) {
		list, more, err := db.ListFiles(ctx, p, "", store.Page{Limit: limit, After: after, Ascending: true})
		if err != nil {
			return nil, "", err
		}
		page := make([]aged, len(list))
		for i, f := range list {
			page[i] = aged{id: string(f.ID), created: f.CreatedAt}
		}
		ids, next := selectDue(page, more, before)
		return ids, next, nil
	}
}

// responses lists stored responses; those in progress are kept.
func responses(db store.Responses) due {
	return func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) ([]string, string,
		error) {
		list, next, err := db.ListResponses(ctx, p, store.ResponseQuery{After: berth.ResponseID(after), Ascending: true,
			Limit: limit})
		if err != nil {
			return nil, "", err
		}
		page := make([]aged, len(list))
		for i, r := range list {
			page[i] = aged{id: string(r.ID), created: r.CreatedAt, keep: !r.Status.Final()}
		}
		ids, last := selectDue(page, next != "", before)
		if last != "" {
			last = string(next)
		}
		return ids, last, nil
	}
}

// containers lists the containers of a project that have ended. Their age counts from their last use.
func containers(db store.Containers) due {
	return func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) ([]string, string,
		error) {
		list, more, err := db.ListContainers(ctx, p, "", store.Page{Limit: limit, After: after, Ascending: true})
		if err != nil {
			return nil, "", err
		}
		page := make([]aged, len(list))
		for i, c := range list {
			page[i] = aged{id: string(c.Body.ID), created: c.Body.CreatedAt,
				keep: c.Body.Status == berth.ContainerRunning || c.Body.LastActiveAt >= before.Unix()}
		}
		ids, next := selectDue(page, more, before)
		return ids, next, nil
	}
}

// logs lists the entries of the logs of containers, as CONTAINER/ENTRY. A page has entries of one container;
// CONTAINER/ follows the last of them.
func logs(db store.Store) due {
	return func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) ([]string, string,
		error) {
		of, entry, _ := strings.Cut(after, "/")
		for ; ; entry = "" {
			if entry == "" { // the next container
				list, _, err := db.ListContainers(ctx, p, "", store.Page{Limit: 1, After: of, Ascending: true})
				if err != nil {
					return nil, "", fmt.Errorf("list containers: %w", err)
				}
				if len(list) == 0 || list[0].Body.CreatedAt >= before.Unix() {
					return nil, "", nil
				}
				of = string(list[0].Body.ID)
			}
			list, more, err := db.ListObjects(ctx, p, store.KindContainerLog, of,
				store.Page{Limit: limit, After: entry, Ascending: true})
			if err != nil {
				return nil, "", err
			}
			entries := make([]aged, len(list))
			for i, o := range list {
				entries[i] = aged{id: of + "/" + o.ID, created: o.CreatedAt}
			}
			ids, next := selectDue(entries, more, before)
			if next == "" {
				next = of + "/"
			}
			if len(ids) > 0 {
				return ids, next, nil
			}
		}
	}
}
