package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"

	"github.com/berth-run/berth/model"
)

// postForm returns a Send for a POST request with a multipart form. Strings are sent
// without quotes, as forms have them; other fields as JSON.
func (c *Client) postForm(path string, fields map[string]json.RawMessage, files []model.FormFile) Send {
	return func(ctx context.Context) (*http.Response, error) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			value := string(fields[name])
			var text string
			if json.Unmarshal(fields[name], &text) == nil {
				value = text
			}
			if err := form.WriteField(name, value); err != nil {
				return nil, fmt.Errorf("encode form: %w", err)
			}
		}
		for _, f := range files {
			part, err := form.CreatePart(textproto.MIMEHeader{
				"Content-Disposition": {mime.FormatMediaType("form-data",
					map[string]string{"name": f.Field, "filename": f.Name})},
				"Content-Type": {f.MediaType}})
			if err == nil {
				_, err = part.Write(f.Content)
			}
			if err != nil {
				return nil, fmt.Errorf("encode form: %w", err)
			}
		}
		if err := form.Close(); err != nil {
			return nil, fmt.Errorf("encode form: %w", err)
		}
		return c.send(ctx, http.MethodPost, path, body.Bytes(),
			http.Header{"Content-Type": {form.FormDataContentType()}})
	}
}
