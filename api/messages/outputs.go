package messages

import (
	"context"
	"net/http"
	"path"
	"strings"

	"github.com/berth-run/berth"
)

// An output is a file of a container, which is a file for Anthropic's clients too. Its id names both: the file exists
// as long as its container.
type output struct {
	id        berth.FileID
	container berth.ContainerID
	file      berth.CFileID
}

// outputID returns the id of a file of a container: cfile_FILE_CONTAINER.
func outputID(f *berth.ContainerFile) berth.FileID {
	return berth.FileID(string(f.ID) + "_" + strings.TrimPrefix(string(f.ContainerID), berth.PrefixContainer))
}

// output returns the file of a container that the path of a request names.
func (h *storedFiles) output(r *http.Request) (output, bool) {
	id := fileID(r)
	rest, ok := strings.CutPrefix(string(id), berth.PrefixContainerFile)
	file, container, whole := strings.Cut(rest, "_")
	if !ok || !whole || h.outputs == nil {
		return output{}, false
	}
	return output{id, berth.ContainerID(berth.PrefixContainer + container),
		berth.CFileID(berth.PrefixContainerFile + file)}, true
}

// error returns the error of an unknown file for one of an unknown container.
func (o *output) error(err error) error {
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return berth.NotFound("File", o.id)
	}
	return err
}

func newOutputInfo(f *berth.ContainerFile) fileInfo {
	return fileInfo{ID: outputID(f), Type: "file", Filename: path.Base(f.Path), MimeType: mimeType(f.Path),
		SizeBytes: f.Bytes, CreatedAt: date(f.CreatedAt), Downloadable: true}
}

// maxOutputs bounds the files of a container among which the changed ones are found.
const maxOutputs = 10_000

// ids returns the ids of a container's files by their paths.
func (h *storedFiles) ids(ctx context.Context, c berth.Caller, id berth.ContainerID) map[string]berth.FileID {
	if h.outputs == nil || id == "" {
		return nil
	}
	list, _, err := h.outputs.List(ctx, c.Project, id, berth.Page{Limit: maxOutputs})
	if err != nil {
		return nil // the container is gone
	}
	ids := map[string]berth.FileID{}
	for _, f := range list {
		ids[f.Path] = outputID(f)
	}
	return ids
}
