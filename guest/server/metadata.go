package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

const (
	// metadataHeader begins the headers with the metadata of an uploaded file, as in E2B's protocol.
	metadataHeader = "X-Metadata-"
	// metadataAttribute begins the names of the extended attributes that keep metadata.
	metadataAttribute = "user.e2b."
	// maxMetadata limits the metadata of a file, names and values together, in bytes.
	maxMetadata = 4096
)

// uploadMetadata returns the metadata in the headers of an upload. Names are in lower case, since headers
// have no case.
func uploadMetadata(h http.Header) (map[string]string, error) {
	var metadata map[string]string
	size := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || key == "" {
			continue
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		key = strings.ToLower(key)
		metadata[key] = strings.Join(values, ", ")
		size += len(key) + len(metadata[key])
	}
	if size > maxMetadata {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("the metadata has %d bytes; at most %d are allowed", size, maxMetadata))
	}
	return metadata, nil
}

// setMetadata saves the metadata of a file.
func setMetadata(f *os.File, metadata map[string]string) error {
	for key, value := range metadata {
		err := unix.Fsetxattr(int(f.Fd()), metadataAttribute+key, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			return connect.NewError(connect.CodeInvalidArgument,
				errors.New("the file system of this path keeps no metadata"))
		}
		if err != nil {
			return fmt.Errorf("set metadata '%s': %w", key, err)
		}
	}
	return nil
}

// fileMetadata returns the metadata of a file, or nil. Programs in the sandbox may write the attributes,
// so values that are not UTF-8 are left out, and the names are bounded.
func fileMetadata(path string) map[string]string {
	names := make([]byte, 16<<10)
	n, err := unix.Listxattr(path, names)
	if err != nil || n == 0 {
		return nil
	}
	var metadata map[string]string
	value := make([]byte, maxMetadata)
	size := 0
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		key, ok := strings.CutPrefix(name, metadataAttribute)
		if !ok || !utf8.ValidString(key) {
			continue
		}
		n, err := unix.Getxattr(path, name, value)
		if err != nil || !utf8.Valid(value[:n]) {
			continue
		}
		if size += len(key) + n; size > maxMetadata {
			return metadata
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[key] = string(value[:n])
	}
	return metadata
}
