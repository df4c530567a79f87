package server

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"

	"connectrpc.com/connect"
)

// eachPart saves the parts named "file" of a form. If the request has no path, a part's file
// name is the whole path; multipart.Part.FileName would cut it.
func eachPart(body io.Reader, boundary, path string, save func(path string, body io.Reader) error) error {
	form := multipart.NewReader(body, boundary)
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
		if part.FormName() != "file" {
			continue
		}
		to := path
		if to == "" {
			_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			to = params["filename"]
		}
		if to == "" {
			return connect.NewError(connect.CodeInvalidArgument,
				errors.New("a file part has no name and the request no path"))
		}
		if err := save(to, part); err != nil {
			return err
		}
	}
}
