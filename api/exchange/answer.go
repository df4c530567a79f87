package exchange

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// JSON answers with the JSON of v. It returns an error if v cannot be marshalled, and
// ignores errors of writing, which mean that the client is gone.
func (x *Exchange) JSON(status int, v any) error { return WriteJSON(x, status, v) }

// WriteJSON is like Exchange.JSON for any http.ResponseWriter.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, ok := v.(json.RawMessage) // stored JSON, sent unchanged
	if !ok {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return err
		}
	}
	writePieces(w, status, body)
	return nil
}

// Pieces answers with the JSON that is the concatenation of the pieces.
func (x *Exchange) Pieces(status int, pieces ...[]byte) { writePieces(x, status, pieces...) }

func writePieces(w http.ResponseWriter, status int, pieces ...[]byte) {
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	deliver(w, pieces...)
}

// deliver writes a body. It stops if the client does not read it.
func deliver(w http.ResponseWriter, pieces ...[]byte) {
	out := io.Writer(w)
	if x, ok := w.(*Exchange); ok && x.server.Limits.Patience > 0 {
		patient := x.Patient()
		defer patient.Renew() // the server sends the last bytes after the handler returns
		out = patient
	}
	for _, piece := range pieces {
		if _, err := out.Write(piece); err != nil {
			return
		}
	}
}

// Download answers with a file. A negative size means unknown. The headers make browsers
// store the file, of any type, instead of displaying it. Range requests work if content is
// an io.Seeker.
func (x *Exchange) Download(r *http.Request, name string, size int64, content io.Reader) error {
	return x.DownloadAs(r, "application/octet-stream", name, size, content)
}

// DownloadAs is Download with a media type, which must be one that browsers do not execute.
func (x *Exchange) DownloadAs(r *http.Request, mediaType, name string, size int64, content io.Reader) error {
	h := x.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Disposition", Attachment(name))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	out := x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	if seeker, ok := content.(io.ReadSeeker); ok {
		http.ServeContent(out, r, "", time.Time{}, seeker)
		return nil
	}
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	x.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(out, content); err != nil {
		x.Abort(err)
	}
	return nil
}

// Attachment returns the Content-Disposition with which a browser stores a file under the
// given name.
func Attachment(name string) string {
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": name}); v != "" {
		return v
	}
	return "attachment"
}
