package api

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/guest"
)

// An archiver writes files into an archive.
type archiver interface {
	add(f *guest.File) error
	io.Closer
}

// archives are the archive formats by file extension.
var archives = map[string]func(io.Writer) archiver{
	"tar":    func(w io.Writer) archiver { return &tarArchiver{Writer: tar.NewWriter(w)} },
	"tar.gz": newGzipArchiver,
	"zip":    func(w io.Writer) archiver { return zipArchiver{zip.NewWriter(w)} },
}

// archive serves GET /v1/containers/{container}/archive: the files at and below a path,
// absolute or relative to the working directory, as one archive. It streams the files.
func (h *containers) archive(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	below := q.Text("path")
	format := cmp.Or(q.OneOf("format", "tar", "tar.gz", "zip"), "tar")
	if err := q.End(); err != nil {
		return err
	}
	next, stop := iter.Pull2(h.service.Files().Walk(r.Context(), c.Project, containerID(r), below))
	defer stop()
	f, err, more := next() // before the header, so that an error sets the HTTP status
	if err != nil {
		return err
	}
	header := x.Header()
	header.Set("Content-Type", map[string]string{"tar": "application/x-tar", "tar.gz": "application/gzip",
		"zip": "application/zip"}[format])
	header.Set("Content-Disposition", exchange.Attachment(archiveName(below)+"."+format))
	header.Set("X-Content-Type-Options", "nosniff")
	x.WriteHeader(http.StatusOK)
	body := x.Patient()
	defer body.Renew() // the server sends the last bytes after the handler returns
	out := archives[format](body)
	for ; more && err == nil; f, err, more = next() {
		if err = out.add(f); err != nil {
			break
		}
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		x.Abort(err)
	}
	return nil
}

// archiveName returns the file name of the archive of a path, without its extension.
func archiveName(below string) string {
	if at := path.Clean("/" + below); at != "/" {
		return path.Base(at)
	}
	return "files"
}

type tarArchiver struct {
	*tar.Writer
	below io.Closer // the compressor below the writer, or nil
}

func newGzipArchiver(w io.Writer) archiver {
	z := gzip.NewWriter(w)
	return &tarArchiver{tar.NewWriter(z), z}
}

func (a *tarArchiver) add(f *guest.File) error {
	h := &tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(mode(f)), Size: f.Size,
		ModTime: f.Modified}
	if err := a.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.CopyN(a.Writer, f.Content, f.Size)
	return err
}

func (a *tarArchiver) Close() error {
	if err := a.Writer.Close(); err != nil || a.below == nil {
		return err
	}
	return a.below.Close()
}

type zipArchiver struct{ *zip.Writer }

func (a zipArchiver) add(f *guest.File) error {
	h := &zip.FileHeader{Name: zipName(f.Path), Method: zip.Deflate, Modified: f.Modified}
	h.SetMode(mode(f))
	w, err := a.CreateHeader(h)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	_, err = io.CopyN(w, f.Content, f.Size)
	return err
}

// drive matches a Windows drive at the start of any element of a path.
var drive = regexp.MustCompile(`(^|/)([A-Za-z]):`)

// zipName returns a safe name for a file in a ZIP archive. Some Windows programs would
// interpret a backslash or a drive in it and extract to any place.
func zipName(path string) string {
	return drive.ReplaceAllString(strings.ReplaceAll(path, `\`, "_"), "${1}${2}_")
}

func mode(f *guest.File) fs.FileMode {
	if f.Executable {
		return 0o755
	}
	return 0o644
}
