package transcript

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"path"
	"strings"

	"github.com/berth-run/berth"
)

// A Fetcher reads files for messages that refer to them by URL.
type Fetcher interface {
	// Fetch returns the name and content of the file at a URL. Errors for the client are
	// *berth.Error.
	Fetch(ctx context.Context, url string) (name string, content []byte, err error)
}

// FetchFiles returns items with the content of each file beside its file_url. It reads a
// file once, when its item arrives, so that later turns, and a server that imports the
// chain, show the model the same content.
func (s *Service) FetchFiles(ctx context.Context, items []berth.Item) ([]berth.Item, error) {
	var out []berth.Item
	for i, it := range items {
		if !bytes.Contains(it.Raw(), []byte(`"file_url"`)) {
			continue
		}
		fetched, err := s.fetchFiles(ctx, it, i)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = append(out, items...)
		}
		out[i] = fetched
	}
	if out == nil {
		return items, nil
	}
	return out, nil
}

func (s *Service) fetchFiles(ctx context.Context, it berth.Item, at int) (berth.Item, error) {
	field, parts := parts(s.Tools, it)
	changed := false
	for n, part := range parts {
		var url string
		if json.Unmarshal(part["file_url"], &url) != nil || url == "" || part["file_data"] != nil {
			continue
		}
		param := fmt.Sprintf("input[%d].%s[%d].file_url", at, field, n)
		if s.Fetcher == nil {
			return it, &berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_parameter", Param: param,
				Message: fmt.Sprintf(
					"Unsupported parameter: '%s' is not supported by this server. Upload the file and send its 'file_id'.",
					param)}
		}
		name, content, err := s.Fetcher.Fetch(ctx, url)
		if known, ok := errors.AsType[*berth.Error](err); ok {
			known := *known
			known.Param = param
			return it, &known
		}
		if err != nil {
			return it, fmt.Errorf("fetch file: %w", err)
		}
		if len(content) > MaxInlineFile {
			return it, berth.Errorf(berth.CodeTooLarge,
				"The file at '%s' is larger than %d bytes, the limit for a file in a message.", param, MaxInlineFile)
		}
		part["file_data"] = berth.StringDelta(dataURL(mediaType(name), content))
		if part["filename"] == nil {
			part["filename"] = berth.StringDelta(name)
		}
		changed = true
	}
	if !changed {
		return it, nil
	}
	return it.With(map[string]any{field: parts})
}

// mediaType returns the media type of a file by the extension of its name.
func mediaType(name string) string {
	return cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream")
}

func isImage(mediaType string) bool { return strings.HasPrefix(mediaType, "image/") }

// dataURL returns content as a data: URL.
func dataURL(mediaType string, content []byte) string {
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(content)
}

// sniffImage returns the media type of an image by its first bytes, or "" for content that
// models do not accept as an image.
func sniffImage(content []byte) string {
	for prefix, media := range map[string]string{"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff": "image/jpeg",
		"GIF87a": "image/gif", "GIF89a": "image/gif"} {
		if bytes.HasPrefix(content, []byte(prefix)) {
			return media
		}
	}
	if len(content) > 12 && string(content[:4]) == "RIFF" && string(content[8:12]) == "WEBP" {
		return "image/webp"
	}
	return ""
}
