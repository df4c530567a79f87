package sealed

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/store"
)

// An Opener opens boxes. It caches the key of the last one, because the boxes of a row
// are mostly opened together. All methods overwrite the boxes, and return
// store.ErrNotFound if their key is erased. An Opener is not for concurrent use.
type Opener struct {
	keys *Keys
	last Key
}

// Opener returns an Opener of boxes that were sealed with k.
func (k *Keys) Opener() *Opener { return &Opener{keys: k} }

// Key returns the key of the box that was opened last, to seal its row again.
func (o *Opener) Key() Key { return o.last }

// Response opens the boxes of a response and decodes them into r.
func (o *Opener) Response(boxes Response, r *store.Response) error {
	err := errors.Join(o.openJSON(contentBody, boxes.Body, &r.Body), o.openJSON(contentRequest, boxes.Request, &r.Request), o.openJSON(contentInput, boxes.Input, &r.Input))
	if err != nil {
		return err
	}
	return o.openJSON(contentOutput, boxes.Output, &r.Body.Output)
}

// ResponseJSON returns the JSON of a response's body with its output, in pieces that
// follow each other.
func (o *Opener) ResponseJSON(body, output []byte) ([][]byte, error) {
	body, err := o.open(contentBody, body)
	if err != nil {
		return nil, err
	}
	if output, err = o.open(contentOutput, output); err != nil {
		return nil, err
	}
	start, end, ok := jsonscan.Field(body, "output")
	if !ok {
		return nil, errors.New("the body has no field for the output")
	}
	return [][]byte{body[:start], output, body[end:]}, nil
}

// ResponseBody opens and decodes a response's body, which is without its output.
func (o *Opener) ResponseBody(box []byte) (*berth.Response, error) {
	return decode[berth.Response](o, box)
}

// Items opens and decodes the input and the output of a response.
func (o *Opener) Items(inputBox, outputBox []byte) (input, output []berth.Item, err error) {
	if err := o.openJSON(contentInput, inputBox, &input); err != nil {
		return nil, nil, err
	}
	if err := o.openJSON(contentOutput, outputBox, &output); err != nil {
		return nil, nil, err
	}
	return input, output, nil
}

// Event returns the data of an event.
func (o *Opener) Event(box []byte) ([]byte, error) { return o.open(contentEvent, box) }

// Object returns the body of an object.
func (o *Opener) Object(box []byte) ([]byte, error) { return o.open(contentBody, box) }

// Item decodes an object that is an item of a conversation.
func (o *Opener) Item(box []byte) (*berth.Item, error) { return decode[berth.Item](o, box) }

// Container opens and decodes the body of a container.
func (o *Opener) Container(box []byte) (*berth.Container, error) {
	return decode[berth.Container](o, box)
}

// File opens and decodes an uploaded file and the key of its bytes.
func (o *Opener) File(box []byte) (*berth.File, []byte, error) {
	f, err := decode[file](o, box)
	if err != nil {
		return nil, nil, err
	}
	return &f.File, f.Key, nil
}

// Path is the reverse of Key.Path.
func (o *Opener) Path(hidden string, box []byte) (string, error) {
	if len(box) == 0 {
		return hidden, nil
	}
	path, err := o.open(contentPath, box)
	return string(path), err
}

func decode[T any](o *Opener, box []byte) (*T, error) {
	v := new(T)
	if err := o.openJSON(contentBody, box, v); err != nil {
		return nil, err
	}
	return v, nil
}

func (o *Opener) openJSON(c content, box []byte, v any) error {
	plain, err := o.open(c, box)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(plain, v); err != nil {
		return fmt.Errorf("decode %s: %w", c, err)
	}
	return nil
}

// open returns what is in a box, which it overwrites.
func (o *Opener) open(c content, box []byte) ([]byte, error) {
	if n := keyOf(box); n != o.last.number {
		var err error
		if o.last, err = o.keys.Get(n); err != nil {
			return nil, err
		}
	}
	if o.last.number == 0 {
		return box, nil
	}
	header := box[:boxHeader]
	plain, err := o.last.aead.Open(box[boxHeader:boxHeader], nil, box[boxHeader:], append([]byte(c), header...))
	if err != nil {
		// The key may have been erased since it was cached, but not changed.
		return nil, fmt.Errorf("the content that key %d seals is damaged", o.last.number)
	}
	return plain, nil
}
