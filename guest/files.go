package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	pb "github.com/berth-run/berth/guest/guestpb/filesystem"
)

// An Entry is a file or directory in a sandbox, as reported by the guest.
type Entry struct {
	Path     string
	Size     int64
	Modified time.Time
	Dir      bool
	Regular  bool // a regular file, reached without a link
	Perm     fs.FileMode
	Link     string // the target of a symbolic link, or ""
}

// List returns the entries below a directory, down to a depth (1: its own entries). It
// leaves out entries whose paths are not clean UTF-8 below dir, because the guest is not
// trusted. It returns fs.ErrNotExist if the directory does not exist.
func (c *Client) List(ctx context.Context, dir string, depth int) ([]Entry, error) {
	resp, err := c.files.ListDir(ctx, connect.NewRequest(&pb.ListDirRequest{Path: dir, Depth: uint32(depth)}))
	if err != nil {
		return nil, asFileError(err)
	}
	var out []Entry
	for _, e := range resp.Msg.Entries {
		if !Below(dir, e.Path) || e.Size < 0 {
			continue
		}
		link := e.SymlinkTarget != nil
		out = append(out, Entry{Path: e.Path, Size: e.Size, Modified: e.ModifiedTime.AsTime(),
			Dir:     e.Type == pb.FileType_FILE_TYPE_DIRECTORY && !link,
			Regular: e.Type == pb.FileType_FILE_TYPE_FILE && !link, Perm: fs.FileMode(e.Mode).Perm(),
			Link: e.GetSymlinkTarget()})
	}
	return out, nil
}

// Stat describes the file at an absolute path; of a link, its target, as Dir and Regular tell.
// It returns fs.ErrNotExist if there is none.
func (c *Client) Stat(ctx context.Context, path string) (Entry, error) {
	resp, err := c.files.Stat(ctx, connect.NewRequest(&pb.StatRequest{Path: path}))
	if err != nil {
		return Entry{}, asFileError(err)
	}
	e := resp.Msg.GetEntry()
	return Entry{Path: path, Size: e.GetSize(), Modified: e.GetModifiedTime().AsTime(),
		Dir:     e.GetType() == pb.FileType_FILE_TYPE_DIRECTORY,
		Regular: e.GetType() == pb.FileType_FILE_TYPE_FILE, Perm: fs.FileMode(e.GetMode()).Perm(),
		Link: e.GetSymlinkTarget()}, nil
}

// MakeDir makes a directory and those above it, owned by the default user. It returns an error if
// the path exists.
func (c *Client) MakeDir(ctx context.Context, path string) error {
	_, err := c.files.MakeDir(ctx, connect.NewRequest(&pb.MakeDirRequest{Path: path}))
	return asFileError(err)
}

// Below reports whether path is a clean path of a file below dir, in UTF-8 and
// without control characters.
func Below(dir, path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return ok && len(path) <= 4096 && fs.ValidPath(rest) && rest != "." && utf8.ValidString(rest) &&
		!strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Mode returns the permission bits of a file, with fs.ModeDir for a directory; for a link, those of its
// target.
func (c *Client) Mode(ctx context.Context, path string) (fs.FileMode, error) {
	resp, err := c.files.Stat(ctx, connect.NewRequest(&pb.StatRequest{Path: path}))
	if err != nil {
		return 0, asFileError(err)
	}
	mode := fs.FileMode(resp.Msg.GetEntry().GetMode()).Perm()
	if resp.Msg.GetEntry().GetType() == pb.FileType_FILE_TYPE_DIRECTORY {
		mode |= fs.ModeDir
	}
	return mode, nil
}

// WorkDir returns the directory in which commands start.
func (c *Client) WorkDir(ctx context.Context) (string, error) {
	resp, err := c.files.Stat(ctx, connect.NewRequest(&pb.StatRequest{})) // no path is that directory
	if err != nil {
		return "", asFileError(err)
	}
	return resp.Msg.GetEntry().GetPath(), nil
}

// RootHeader is the header of a request for a file or for its removal. It names the directory that no
// link may lead out of. Guests that do not know the header follow links when they remove.
const RootHeader = "Berth-Root"

// Remove removes a file or a tree below root; no link leads out of root. It returns nil if
// the file does not exist.
func (c *Client) Remove(ctx context.Context, root, path string) error {
	req := connect.NewRequest(&pb.RemoveRequest{Path: root + "/" + path})
	req.Header().Set(RootHeader, root)
	_, err := c.files.Remove(ctx, req)
	return asFileError(err)
}

// ReadFile opens a regular file below root for reading; no link leads out of
// root. With root "" path is absolute. The caller closes it.
func (c *Client) ReadFile(ctx context.Context, root, path, user string) (io.ReadCloser, int64, error) {
	resp, err := c.filesRequest(ctx, http.MethodGet, root, path, user, nil)
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

func (c *Client) filesRequest(ctx context.Context, method, root, path, user string, body io.Reader) (*http.Response,
	error) {
	req, err := http.NewRequestWithContext(ctx, method, filesURL(c.base, root, path, user), body)
	if err != nil {
		return nil, err
	}
	if root != "" {
		req.Header.Set(RootHeader, root)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, answerError(resp)
}

func filesURL(base, root, path, user string) string {
	q := url.Values{"path": {path}}
	if root != "" {
		q.Set("root", root) // for guests of earlier versions
	}
	if user != "" {
		q.Set("username", user)
	}
	return base + "/files?" + q.Encode()
}

// answerError returns the error in an answer.
func answerError(resp *http.Response) error {
	var e struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if json.Unmarshal(text, &e) != nil || e.Message == "" {
		e.Message = resp.Status
	}
	return statusError(resp.StatusCode, e.Message)
}

// ErrNoSpace means that the sandbox's disk is full.
var ErrNoSpace = errors.New("no space left in the sandbox")

func statusError(status int, message string) error {
	switch status {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", fs.ErrNotExist, message)
	case http.StatusForbidden:
		return fmt.Errorf("%w: %s", fs.ErrPermission, message)
	case http.StatusBadRequest:
		return fmt.Errorf("%w: %s", fs.ErrInvalid, message)
	case http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %s", ErrNoSpace, message)
	}
	return errors.New(message)
}

// asFileError wraps an RPC error with the matching error of package fs.
func asFileError(err error) error {
	if err == nil {
		return nil
	}
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case connect.CodePermissionDenied:
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	case connect.CodeAlreadyExists:
		return fmt.Errorf("%w: %w", fs.ErrExist, err)
	case connect.CodeInvalidArgument:
		return fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	case connect.CodeResourceExhausted:
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
