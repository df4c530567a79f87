package skills

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
)

// A Source is the upload of a skill: its files, or one zip archive of them.
type Source interface {
	// Next returns the next file: its path, its media type and its content, which is valid
	// until the next call. It returns io.EOF after the last one.
	Next() (name, mediaType string, content io.Reader, err error)
}

// receive writes the upload of a skill to w as a zip archive and returns its size in bytes.
func receive(w io.Writer, src Source) (int64, error) {
	name, mediaType, content, err := src.Next()
	if errors.Is(err, io.EOF) {
		return 0, &berth.Error{Code: berth.CodeInvalid, Wire: "missing_required_parameter", Param: "files",
			Message: "Missing required parameter: 'files'."}
	}
	if err != nil {
		return 0, err
	}
	out := &counted{w: w}
	if isArchive(name, mediaType) {
		err = receiveArchive(out, src, content)
	} else {
		err = receiveFiles(out, src, name, content)
	}
	return out.n, err
}

// isArchive reports whether a file is the archive of a whole skill.
func isArchive(name, mediaType string) bool {
	if strings.Contains(name, "/") || strings.EqualFold(name, manifestName) {
		return false
	}
	return strings.EqualFold(path.Ext(name), ".zip") || strings.HasPrefix(mediaType, "application/zip") ||
		strings.HasPrefix(mediaType, "application/x-zip")
}

func receiveArchive(w io.Writer, src Source, content io.Reader) error {
	n, err := io.Copy(w, io.LimitReader(content, MaxZipBytes+1))
	if err != nil {
		return err
	}
	if n > MaxZipBytes {
		return tooLarge("The zip archive of a skill is larger than the limit of %d bytes.", MaxZipBytes)
	}
	switch _, _, _, err := src.Next(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return berth.Invalid("files",
		"Invalid 'files': a zip archive must be the only file. Send all files of the skill, or one archive of them.")
}

func receiveFiles(w io.Writer, src Source, name string, content io.Reader) error {
	archive, total := zip.NewWriter(w), int64(0)
	for n := 1; ; n++ {
		if n > MaxFiles {
			return tooLarge("The skill has more files than the limit of %d.", MaxFiles)
		}
		if err := checkPath(name); err != nil {
			return refused(err)
		}
		size, err := receiveFile(archive, name, content)
		if err != nil {
			return err
		}
		if total += size; total > MaxBytes {
			return tooLarge("The files of the skill have more than the limit of %d bytes together.", MaxBytes)
		}
		if name, _, content, err = src.Next(); errors.Is(err, io.EOF) {
			if err := archive.Close(); err != nil {
				return fmt.Errorf("write archive: %w", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// receiveFile adds a file to an archive. A form says nothing of permissions, so files that start
// with #! become executable when the folder is read.
func receiveFile(archive *zip.Writer, name string, content io.Reader) (int64, error) {
	w, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
	if err != nil {
		return 0, fmt.Errorf("write archive: %w", err)
	}
	size, err := io.Copy(w, io.LimitReader(content, MaxFileBytes+1))
	if err != nil {
		return 0, err
	}
	if size > MaxFileBytes {
		return 0, tooLarge("File '%s' of the skill is larger than the limit of %d bytes.", name, MaxFileBytes)
	}
	return size, nil
}

func tooLarge(format string, args ...any) error {
	return &berth.Error{Code: berth.CodeTooLarge, Param: "files", Message: fmt.Sprintf(format, args...)}
}

// refused returns the client's error for an invalid skill.
func refused(err error) error {
	if e, ok := errors.AsType[invalid](err); ok {
		return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_skill", Param: "files",
			Message: "The skill is refused: " + e.Error() + "."}
	}
	return err
}

type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// inspect reads a stored archive and validates it.
func (s *Service) inspect(ctx context.Context, at blob.Ref, key blob.Key, size int64) (*folder, error) {
	content, err := s.contents.OpenSeeker(ctx, at, key, size)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return readFolder(readerAt{content}, size)
}

// A readerAt reads a seekable content at any offset. One goroutine uses it.
type readerAt struct{ io.ReadSeeker }

func (r readerAt) ReadAt(p []byte, at int64) (int, error) {
	if _, err := r.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(r, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// markOf returns the mark in the name of a skill's folder: what differs between two skills or
// versions of one name.
func markOf(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:16])
}

func pathOf(name, mark string) string { return berth.SkillsDir + "/" + name + "-" + mark }
