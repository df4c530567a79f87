package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Response holds the boxes of a response. The output is separate from the body, so
// that a chain can be read without the rest.
type Response struct {
	Request, Input []byte // never changed
	Body, Output   []byte // the fold of the events so far
}

// Response seals a new response.
func (k Key) Response(r *store.Response) (boxes Response, err error) {
	if boxes.Request, err = k.sealJSON(contentRequest, r.Request); err != nil {
		return boxes, err
	}
	if boxes.Input, err = k.sealJSON(contentInput, r.Input); err != nil {
		return boxes, err
	}
	boxes.Body, boxes.Output, err = k.ResponseBody(r.Body)
	return boxes, err
}

// ResponseBody seals the changing part of a response.
func (k Key) ResponseBody(r *berth.Response) (body, output []byte, err error) {
	if output, err = k.sealJSON(contentOutput, r.Output); err != nil {
		return nil, nil, err
	}
	bare := *r
	bare.Output = []berth.Item{}
	body, err = k.sealJSON(contentBody, &bare)
	return body, output, err
}

// Event seals the data of an event, with the key of its response.
func (k Key) Event(data []byte) []byte { return k.seal(contentEvent, data) }

// Object seals the body of an object.
func (k Key) Object(body []byte) []byte { return k.seal(contentBody, body) }

// Container seals the body of a container.
func (k Key) Container(c *berth.Container) ([]byte, error) { return k.sealJSON(contentBody, c) }

// file is an uploaded file and the key of its bytes.
type file struct {
	berth.File
	Key []byte `json:"key,omitempty"`
}

// File seals an uploaded file and the key of its bytes.
func (k Key) File(f *berth.File, key []byte) ([]byte, error) {
	return k.sealJSON(contentBody, file{*f, key})
}

// Path seals the path of a file in a container, with the container's key. It returns a
// box, and a digest that replaces the path in the database, so that the file can be
// found by its path.
func (k Key) Path(path string) (hidden string, box []byte) {
	if k.number == 0 {
		return path, []byte{}
	}
	h := hmac.New(sha256.New, k.secret[:])
	h.Write([]byte("path\x00" + path))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)), k.seal(contentPath, []byte(path))
}

func (k Key) sealJSON(c sealedField, v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return k.seal(c, plain), nil
}
