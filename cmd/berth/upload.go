package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
)

// sendFile sends a local file with fields as a form, in which it has the name field, and decodes the answer into out.
func (c *client) sendFile(ctx context.Context, path string, fields map[string]string, field, name string,
	out any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		var err error
		for key, value := range fields {
			err = errors.Join(err, form.WriteField(key, value))
		}
		if err == nil {
			var part io.Writer
			if part, err = form.CreateFormFile(field, filepath.Base(name)); err == nil {
				_, err = io.Copy(part, f)
			}
		}
		w.CloseWithError(errors.Join(err, form.Close()))
	}()
	resp, err := c.do(ctx, http.MethodPost, path, form.FormDataContentType(), r)
	r.CloseWithError(errors.New("upload aborted"))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%s: decode the answer: %w", name, err)
	}
	return nil
}
