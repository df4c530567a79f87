package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"

	"crypto/rand"

	pb "github.com/berth-run/berth/guest/guestpb/filesystem"
)

// Bounds on watching.
const (
	maxWatchers      = 64
	maxPolledEvents  = 10_000
	polledWatcherTTL = 10 * time.Minute
)

// watchers are the polled counterparts of WatchDir, by id.
type watchers struct {
	server *Server

	mu     sync.Mutex
	polled map[string]*watcher
}

// A watcher collects events until they are fetched, or until it is dropped.
type watcher struct {
	cancel context.CancelFunc
	idle   *time.Timer

	mu     sync.Mutex
	events []*pb.FilesystemEvent
}

// WatchDir implements filesystem.Filesystem.
func (f *filesystem) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest],
	stream *connect.ServerStream[pb.WatchDirResponse]) error {
	path, _, err := f.path(req, req.Msg.Path)
	if err != nil {
		return err
	}
	w, err := f.server.watches.tree(path, req.Msg.Recursive, req.Msg.IncludeEntry)
	if err != nil {
		return err
	}
	defer w.close()
	if err := stream.Send(
		&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	silence := time.NewTicker(keepAlive)
	defer silence.Stop()
	for {
		msg := &pb.WatchDirResponse{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
			msg.Event = &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}
			if err := stream.Send(msg); err != nil {
				return err
			}
			continue
		case ev, ok := <-w.notify.Events:
			if !ok {
				return nil
			}
			for _, e := range w.translate(ev) {
				msg.Event = &pb.WatchDirResponse_Filesystem{Filesystem: e}
				if err := stream.Send(msg); err != nil {
					return err
				}
			}
		}
	}
}

// A treeWatch watches a directory and, if it is recursive, the directories below it.
type treeWatch struct {
	notify    *fsnotify.Watcher
	placed    *placedFiles
	root      string
	recursive bool
	entries   bool // events have the entries of their files
}

func (ws *watchers) tree(path string, recursive, entries bool) (*treeWatch, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fileError(err)
	}
	if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", path))
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if !recursive {
		err = w.Add(path)
	} else {
		err = addTree(w, path)
	}
	if err != nil {
		w.Close()
		return nil, fileError(err)
	}
	ws.server.placed.watch(1)
	return &treeWatch{notify: w, placed: &ws.server.placed, root: path, recursive: recursive, entries: entries}, nil
}

func (t *treeWatch) close() {
	t.notify.Close()
	t.placed.watch(-1)
}

func addTree(w *fsnotify.Watcher, path string) error {
	return filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = w.Add(p)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fileError(err)
	})
}

// translate turns one notification into events, and watches new directories. An upload is reported as a file
// that was written in its place.
func (t *treeWatch) translate(ev fsnotify.Event) []*pb.FilesystemEvent {
	name := strings.TrimPrefix(strings.TrimPrefix(ev.Name, t.root), "/")
	if t.recursive && ev.Has(fsnotify.Create) {
		if st, err := os.Lstat(ev.Name); err == nil && st.IsDir() {
			_ = addTree(t.notify, ev.Name)
		}
	}
	if !utf8.ValidString(name) || temporaryName.MatchString(filepath.Base(name)) {
		return nil // lists leave the former out, too
	}
	if ev.Has(fsnotify.Create) {
		if uploaded, existed := t.placed.find(ev.Name); uploaded {
			ev.Op |= fsnotify.Write
			if existed {
				ev.Op &^= fsnotify.Create
			} else {
				ev.Op |= fsnotify.Chmod // it gets its owner
			}
		}
	}
	var out []*pb.FilesystemEvent
	for _, k := range []struct {
		op   fsnotify.Op
		kind pb.EventType
	}{
		{fsnotify.Create, pb.EventType_EVENT_TYPE_CREATE}, {fsnotify.Chmod, pb.EventType_EVENT_TYPE_CHMOD},
		{fsnotify.Write, pb.EventType_EVENT_TYPE_WRITE}, {fsnotify.Remove, pb.EventType_EVENT_TYPE_REMOVE},
		{fsnotify.Rename, pb.EventType_EVENT_TYPE_RENAME},
	} {
		if !ev.Has(k.op) {
			continue
		}
		e := &pb.FilesystemEvent{Name: name, Type: k.kind}
		if t.entries {
			e.Entry, _ = entry(ev.Name)
		}
		out = append(out, e)
	}
	return out
}

// CreateWatcher implements filesystem.Filesystem.
func (f *filesystem) CreateWatcher(_ context.Context,
	req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	path, _, err := f.path(req, req.Msg.Path)
	if err != nil {
		return nil, err
	}
	ws := f.server.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.polled) >= maxWatchers {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d watchers", maxWatchers))
	}
	tree, err := ws.tree(path, req.Msg.Recursive, req.Msg.IncludeEntry)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	id, w := rand.Text(), &watcher{cancel: cancel}
	ws.polled[id] = w
	w.idle = time.AfterFunc(polledWatcherTTL, func() { ws.remove(id) })
	go w.collect(ctx, tree)
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

func (w *watcher) collect(ctx context.Context, tree *treeWatch) {
	defer tree.close()
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-tree.notify.Events:
			if !ok {
				return
			}
			events := tree.translate(ev)
			w.mu.Lock()
			if len(w.events) < maxPolledEvents {
				w.events = append(w.events, events...)
			}
			w.mu.Unlock()
		}
	}
}

// GetWatcherEvents implements filesystem.Filesystem.
func (f *filesystem) GetWatcherEvents(_ context.Context,
	req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	ws := f.server.watches
	ws.mu.Lock()
	w := ws.polled[req.Msg.WatcherId]
	ws.mu.Unlock()
	if w == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found",
			req.Msg.WatcherId))
	}
	w.idle.Reset(polledWatcherTTL)
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &pb.GetWatcherEventsResponse{Events: w.events}
	w.events = nil
	return connect.NewResponse(out), nil
}

// RemoveWatcher implements filesystem.Filesystem.
func (f *filesystem) RemoveWatcher(_ context.Context,
	req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	if !f.server.watches.remove(req.Msg.WatcherId) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found",
			req.Msg.WatcherId))
	}
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}

func (ws *watchers) remove(id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.polled[id]
	if w == nil {
		return false
	}
	delete(ws.polled, id)
	w.idle.Stop()
	w.cancel()
	return true
}
