package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/berth-run/berth/guest/guestpb/filesystem"
	"github.com/berth-run/berth/internal/beneath"
)

// maxEntries bounds one listing.
const maxEntries = 20_000

// filesystem serves envd's filesystem.Filesystem.
type filesystem struct{ server *Server }

// path resolves a request's path for its user.
func (f *filesystem) path(req connect.AnyRequest, path string) (string, identity, error) {
	id, err := f.server.requestUser(req.Header())
	if err != nil {
		return "", id, err
	}
	return f.server.resolve(path, id), id, nil
}

// Stat implements filesystem.Filesystem.
func (f *filesystem) Stat(_ context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse],
	error) {
	path, _, err := f.path(req, req.Msg.Path)
	if err != nil {
		return nil, err
	}
	e, err := entry(path)
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&pb.StatResponse{Entry: e}), nil
}

// MakeDir implements filesystem.Filesystem.
func (f *filesystem) MakeDir(_ context.Context,
	req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	path, id, err := f.path(req, req.Msg.Path)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil {
		if st.IsDir() {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
		}
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path exists and is not a directory: %s",
			path))
	}
	if err := mkdirAll(path, id); err != nil {
		return nil, fileError(err)
	}
	e, err := entry(path)
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: e}), nil
}

// mkdirAll makes a directory and its missing parents, owned by the user.
func mkdirAll(path string, id identity) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := mkdirAll(parent, id); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return chown(path, id)
}

func chown(path string, id identity) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Lchown(path, id.uid, id.gid)
}

// Move implements filesystem.Filesystem.
func (f *filesystem) Move(_ context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse],
	error) {
	from, id, err := f.path(req, req.Msg.Source)
	if err != nil {
		return nil, err
	}
	to := f.server.resolve(req.Msg.Destination, id)
	if _, err := os.Lstat(from); err != nil {
		return nil, fileError(err)
	}
	if err := mkdirAll(filepath.Dir(to), id); err != nil {
		return nil, fileError(err)
	}
	if err := os.Rename(from, to); err != nil {
		return nil, fileError(err)
	}
	e, err := entry(to)
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: e}), nil
}

// ListDir implements filesystem.Filesystem. Links to directories are listed, not followed.
func (f *filesystem) ListDir(_ context.Context,
	req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	path, _, err := f.path(req, req.Msg.Path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fileError(err)
	}
	if !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", path))
	}
	out := &pb.ListDirResponse{}
	if err := list(path, max(1, int(req.Msg.Depth)), owners{}, out); err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(out), nil
}

func list(dir string, depth int, names owners, out *pb.ListDirResponse) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		if !utf8.ValidString(d.Name()) {
			continue // protobuf strings must be UTF-8
		}
		if len(out.Entries) >= maxEntries {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d entries", maxEntries))
		}
		path := filepath.Join(dir, d.Name())
		e, err := describe(path, names)
		if err != nil {
			continue // it has been removed
		}
		out.Entries = append(out.Entries, e)
		if depth > 1 && d.IsDir() {
			if err := list(path, depth-1, names, out); err != nil && !errors.Is(err, fs.ErrPermission) &&
				!errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Remove implements filesystem.Filesystem. It succeeds if the file does not exist.
func (f *filesystem) Remove(_ context.Context,
	req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	path, _, err := f.path(req, req.Msg.Path)
	if err != nil {
		return nil, err
	}
	if err := remove(req.Header().Get(rootHeader), path); err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

// remove removes a file or a tree, below root if that is not empty, but no file system of the kernel: below
// /proc are links to the root directories of processes. gVisor follows these even with O_NOFOLLOW, so
// os.RemoveAll would empty the container.
func remove(root, path string) error {
	if err := refuseKernels(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if root != "" {
		return removeBelow(root, path)
	}
	return os.RemoveAll(path)
}

// refuseKernels returns an error for the root directory and the file systems of the kernel, also by way
// of a link.
func refuseKernels(path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if path == "/" || path == "/dev" || beneathAny(path, "/proc", "/sys") {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s belongs to the kernel and stays", path))
	}
	return nil
}

// beneathAny reports whether a path is one of the trees, or below one.
func beneathAny(path string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}

// rootHeader is guest.RootHeader.
const rootHeader = "Berth-Root"

// removeBelow removes the file or tree at a path below root; no link leads out of root.
func removeBelow(root, path string) error {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	dir, err := beneath.Open(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.RemoveAll(name)
}

// entry describes a file as envd does. A link has the type and mode of its target, but its
// own permissions; a dangling one has no type.
func entry(path string) (*pb.EntryInfo, error) { return describe(path, owners{}) }

func describe(path string, names owners) (*pb.EntryInfo, error) {
	link, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := &pb.EntryInfo{Name: link.Name(), Path: path, Size: link.Size(), Mode: mode(link),
		Permissions:  link.Mode().String(),
		ModifiedTime: timestamppb.New(link.ModTime()), Type: fileType(link)}
	if st, ok := link.Sys().(*syscall.Stat_t); ok {
		owner, group := names.of(st.Uid, st.Gid)
		e.Owner, e.Group = strings.ToValidUTF8(owner, "\ufffd"), strings.ToValidUTF8(group, "\ufffd")
	}
	if link.Mode()&fs.ModeSymlink != 0 {
		e.Type = pb.FileType_FILE_TYPE_UNSPECIFIED
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			target = path // it leads nowhere
		}
		target = strings.ToValidUTF8(target, "\ufffd")
		e.SymlinkTarget = &target
		if st, err := os.Stat(path); err == nil {
			e.Type, e.Mode, e.Size = fileType(st), mode(st), st.Size()
		}
	}
	if e.Type == pb.FileType_FILE_TYPE_FILE {
		e.Metadata = fileMetadata(path)
	}
	return e, nil
}

func mode(st fs.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Mode & 0o7777
	}
	return uint32(st.Mode().Perm())
}

func fileType(st fs.FileInfo) pb.FileType {
	switch {
	case st.IsDir():
		return pb.FileType_FILE_TYPE_DIRECTORY
	case st.Mode().IsRegular():
		return pb.FileType_FILE_TYPE_FILE
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// owners caches the names of users and groups for one listing, because each look-up reads
// a file, which would take most of the time.
type owners map[[2]uint32][2]string

func (o owners) of(uid, gid uint32) (owner, group string) {
	names, ok := o[[2]uint32{uid, gid}]
	if !ok {
		names = [2]string{strconv.Itoa(int(uid)), strconv.Itoa(int(gid))}
		if u, err := user.LookupId(names[0]); err == nil {
			names[0] = u.Username
		}
		if g, err := user.LookupGroupId(names[1]); err == nil {
			names[1] = g.Name
		}
		o[[2]uint32{uid, gid}] = names
	}
	return names[0], names[1]
}

// fileError returns an error of the file system with the code that envd uses.
func fileError(err error) error {
	var ce *connect.Error
	switch {
	case errors.As(err, &ce):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, fs.ErrPermission):
		return connect.NewError(connect.CodePermissionDenied, err)
	case errors.Is(err, fs.ErrExist):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, syscall.ENOSPC):
		return connect.NewError(connect.CodeResourceExhausted, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG):
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}
