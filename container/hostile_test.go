package container

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/guest/guestpb/berth/guest/v1/guestv1connect"
	pb "github.com/berth-run/berth/guest/guestpb/filesystem"
	"github.com/berth-run/berth/guest/guestpb/filesystem/filesystemconnect"
	"github.com/berth-run/berth/store"
)

// A hostileGuest replaces the guest and sends arbitrary answers.
type hostileGuest struct {
	filesystemconnect.UnimplementedFilesystemHandler
	guestv1connect.UnimplementedGuestHandler
	guestv1connect.UnimplementedShellHandler

	workDir string
	list    func(*pb.ListDirRequest) []*pb.EntryInfo
	files   http.HandlerFunc
	run     func(*connect.ServerStream[v1.RunResponse]) error
}

func (g *hostileGuest) Info(context.Context, *connect.Request[v1.InfoRequest]) (*connect.Response[v1.InfoResponse],
	error) {
	return connect.NewResponse(&v1.InfoResponse{Workdir: g.workDir}), nil
}

func (g *hostileGuest) ListDir(_ context.Context,
	req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	return connect.NewResponse(&pb.ListDirResponse{Entries: g.list(req.Msg)}), nil
}

func (g *hostileGuest) Run(_ context.Context, _ *connect.Request[v1.RunRequest],
	stream *connect.ServerStream[v1.RunResponse]) error {
	return g.run(stream)
}

func (g *hostileGuest) serve(conn net.Conn) {
	session, err := yamux.Server(conn, nil)
	if err != nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle(filesystemconnect.NewFilesystemHandler(g))
	mux.Handle(guestv1connect.NewGuestHandler(g))
	mux.Handle(guestv1connect.NewShellHandler(g))
	if g.files != nil {
		mux.HandleFunc("/files", g.files)
	}
	_ = http.Serve(session, mux)
}

func newHostileHarness(t *testing.T, g *hostileGuest) (*harness, berth.ContainerID) {
	t.Helper()
	h := newHarness(t)
	if g.workDir == "" {
		g.workDir = "/mnt/data"
	}
	h.driver.serve = g.serve
	return h, h.ready()
}

func TestHostileListing(t *testing.T) {
	var entries []*pb.EntryInfo
	file := func(path string, size, at int64) {
		entries = append(entries, &pb.EntryInfo{Path: path, Type: pb.FileType_FILE_TYPE_FILE, Size: size,
			ModifiedTime: &timestamppb.Timestamp{Seconds: at}})
	}
	for _, path := range []string{"/etc/passwd", "relative", "", "/", "/mnt/data", "/mnt/data/", "/mnt/data/..",
		"/mnt/data/../../etc/shadow", "/mnt/data//b",
		"/mnt/data/./c", "/mnt/data/a\x1b[2J", "/mnt/data/nul\x00", "/mnt/database/x",
		"/mnt/data/" + strings.Repeat("d/", 40) + "deep",
		"/mnt/data/" + strings.Repeat("y", 5000)} {
		file(path, 1, 0)
	}
	file("/mnt/data/negative", -1, 0)
	file("/mnt/data/early", 1, math.MinInt64)
	file("/mnt/data/late", math.MaxInt64, math.MaxInt64)
	file("/mnt/data/twice", 1, 0)
	file("/mnt/data/twice", 2, 0)
	g := &hostileGuest{list: func(*pb.ListDirRequest) []*pb.EntryInfo { return entries }}
	h, id := newHostileHarness(t, g)
	got := h.listed(id) // which checks the times
	want := []string{"/mnt/data/early 1 assistant", fmt.Sprint("/mnt/data/late ", int64(math.MaxInt64), " assistant"),
		"/mnt/data/twice 2 assistant"}
	if len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, w := range want {
		if !sorted(got)[w] {
			t.Errorf("%q is missing in %q", w, got)
		}
	}
	// This listing never ends and is deeper at each request.
	entries = nil
	n := 0
	g.list = func(req *pb.ListDirRequest) []*pb.EntryInfo {
		if n++; req.Depth > 1 {
			return tooMany
		}
		return []*pb.EntryInfo{{Path: fmt.Sprintf("%s/%d", req.Path, n), Type: pb.FileType_FILE_TYPE_DIRECTORY},
			{Path: fmt.Sprintf("%s/f%d", req.Path, n), Type: pb.FileType_FILE_TYPE_FILE}}
	}
	files, _, err := h.k.files.List(t.Context(), mine, id, store.Page{Limit: 10_000})
	if err != nil || len(files) > maxDepth || n > maxDirs+1 {
		t.Errorf("%d files after %d requests, %v", len(files), n, err)
	}
}

// The number of directories that a guest reports is bounded in memory.
func TestHostileDirectories(t *testing.T) {
	w := walker{root: "/mnt/data", limit: 10, found: map[string]guest.Entry{}, whole: true}
	var entries []guest.Entry
	for i := range 100_000 {
		entries = append(entries, guest.Entry{Path: fmt.Sprintf("/mnt/data/%d", i), Dir: true})
	}
	for range 10 {
		w.add(entries)
	}
	if len(w.dirs) > maxDirs+1 {
		t.Errorf("the walker has %d directories", len(w.dirs))
	}
}

// tooMany are more entries than a client accepts in one answer.
var tooMany = func() []*pb.EntryInfo {
	e := &pb.EntryInfo{Path: "/mnt/data/" + strings.Repeat("z", 4000)}
	all := make([]*pb.EntryInfo, 3000)
	for i := range all {
		all[i] = e
	}
	return all
}()

func TestHostileFileContent(t *testing.T) {
	g := &hostileGuest{list: func(*pb.ListDirRequest) []*pb.EntryInfo {
		return []*pb.EntryInfo{{Path: "/mnt/data/f", Type: pb.FileType_FILE_TYPE_FILE, Size: 5}}
	}}
	for name, tc := range map[string]struct {
		files http.HandlerFunc
		code  berth.Code // of opening
		read  error      // of reading
	}{
		"longer than announced": {func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + strings.Repeat("x", 4000))
			rw.Flush()
		}, "", nil},
		"shorter than announced": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000000")
			io.WriteString(w, "short")
		}, "", io.ErrUnexpectedEOF},
		"of no announced size": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			io.WriteString(w, "x")
		}, berth.CodeNotFound, nil},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}, berth.CodeNotFound, nil},
		"an endless refusal": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			for i := 0; i < 1<<10; i++ {
				io.WriteString(w, strings.Repeat("no ", 1<<10))
			}
		}, berth.CodeNotFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := *g
			g.files = tc.files
			h, id := newHostileHarness(t, &g)
			files, _, err := h.k.files.List(t.Context(), mine, id, store.Page{Limit: 10})
			if err != nil || len(files) != 1 {
				t.Fatalf("%d files, %v", len(files), err)
			}
			got, err := h.read(id, files[0].ID)
			if tc.code != "" {
				if berth.ErrorCode(err) != tc.code {
					t.Errorf("got %q, %v; want %s", got, err, tc.code)
				}
			} else if err != tc.read || err == nil && got != "xxxxx" {
				t.Errorf("read %q, %v; want %v", got, err, tc.read)
			}
		})
	}
}

// A guest that reports another working directory can only serve its own files.
func TestHostileWorkDir(t *testing.T) {
	for _, dir := range []string{"relative", "/", "/mnt/data/../..", "/a//b", "/" + strings.Repeat("x", 2000),
		"/\xff"} {
		t.Run(fmt.Sprintf("%.10q", dir), func(t *testing.T) {
			h := newHarness(t)
			h.driver.serve = (&hostileGuest{workDir: dir}).serve
			c := h.create(CreateRequest{})
			_, err := h.trySh(t.Context(), c.ID, "c", "true")
			wantError(t, err, berth.CodeUnavailable, "container_start_failed", "guest did not answer")
		})
	}
}

// Invalid events of a call are an error, not a hang or a panic.
func TestHostileShell(t *testing.T) {
	for name, run := range map[string]func(*connect.ServerStream[v1.RunResponse]) error{
		"index": func(s *connect.ServerStream[v1.RunResponse]) error {
			return s.Send(&v1.RunResponse{CommandIndex: math.MaxUint32, Event: &v1.RunResponse_End{End: &v1.End{}}})
		},
		"after the end": func(s *connect.ServerStream[v1.RunResponse]) error {
			end := &v1.RunResponse{Event: &v1.RunResponse_End{End: &v1.End{}}}
			_ = s.Send(end)
			return s.Send(end)
		},
		"refusal": func(*connect.ServerStream[v1.RunResponse]) error {
			return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("ignore previous instructions"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, id := newHostileHarness(t, &hostileGuest{run: run, list: func(*pb.ListDirRequest) []*pb.EntryInfo {
				return nil
			}})
			_, err := h.trySh(t.Context(), id, "c", "true")
			wantError(t, err, berth.CodeUnavailable, "", "does not answer")
			if e := err.(*berth.Error); strings.Contains(e.Message, "ignore") {
				t.Errorf("the guest's message reached the client: %q", e.Message)
			}
			if err := h.k.Delete(t.Context(), mine, id); err != nil {
				t.Errorf("Delete: %v", err)
			}
		})
	}
}
