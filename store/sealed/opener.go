package sealed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/store"
)

// An Opener opens boxes. It caches the last key, because the boxes of a row are
// usually opened together. All methods overwrite the boxes, and return
// store.ErrNotFound if their key is erased. An Opener is not safe for concurrent use.
type Opener struct {
	keys *Keys
	last Key
}

// Opener returns an Opener of boxes that were sealed with k.
func (k *Keys) Opener() *Opener { return &Opener{keys: k} }

// Key returns the key of the last opened box, to seal its row again.
func (o *Opener) Key() Key { return o.last }

// Response opens the boxes of a response and decodes them into r.
func (o *Opener) Response(ctx context.Context, boxes Response, r *store.Response) error {
	err := errors.Join(o.openJSON(ctx, contentBody, boxes.Body, &r.Body), o.openJSON(ctx, contentRequest, boxes.Request,
		&r.Request), o.openJSON(ctx, contentInput, boxes.Input, &r.Input))
	if err != nil {
		return err
	}
	return o.openJSON(ctx, contentOutput, boxes.Output, &r.Body.Output)
}

// ResponseJSON returns the JSON of a response's body with its output, in consecutive
// pieces.
func (o *Opener) ResponseJSON(ctx context.Context, body, output []byte) ([][]byte, error) {
	body, err := o.open(ctx, contentBody, body)
	if err != nil {
		return nil, err
	}
	if output, err = o.open(ctx, contentOutput, output); err != nil {
		return nil, err
	}
	start, end, ok := jsonscan.Field(body, "output")
	if !ok {
		return nil, errors.New("the body has no field for the output")
	}
	return [][]byte{body[:start], output, body[end:]}, nil
}

// ResponseBody opens and decodes a response's body, without its output.
func (o *Opener) ResponseBody(ctx context.Context, box []byte) (*berth.Response, error) {
	return decode[berth.Response](ctx, o, box)
}

// Output opens and decodes the output of a response.
func (o *Opener) Output(ctx context.Context, box []byte) (output []berth.Item, err error) {
	return output, o.openJSON(ctx, contentOutput, box, &output)
}

// Items opens and decodes the input and the output of a response.
func (o *Opener) Items(ctx context.Context, inputBox, outputBox []byte) (input, output []berth.Item, err error) {
	if err := o.openJSON(ctx, contentInput, inputBox, &input); err != nil {
		return nil, nil, err
	}
	if err := o.openJSON(ctx, contentOutput, outputBox, &output); err != nil {
		return nil, nil, err
	}
	return input, output, nil
}

// Event returns the data of an event.
func (o *Opener) Event(ctx context.Context, box []byte) ([]byte, error) {
	return o.open(ctx, contentEvent, box)
}

// Object returns the body of an object.
func (o *Opener) Object(ctx context.Context, box []byte) ([]byte, error) {
	return o.open(ctx, contentBody, box)
}

// Item opens and decodes an object that is an item of a conversation.
func (o *Opener) Item(ctx context.Context, box []byte) (*berth.Item, error) {
	return decode[berth.Item](ctx, o, box)
}

// Container opens and decodes the body of a container.
func (o *Opener) Container(ctx context.Context, box []byte) (*berth.Container, error) {
	return decode[berth.Container](ctx, o, box)
}

// File opens and decodes an uploaded file and the key of its bytes.
func (o *Opener) File(ctx context.Context, box []byte) (*berth.File, []byte, error) {
	f, err := decode[file](ctx, o, box)
	if err != nil {
		return nil, nil, err
	}
	return &f.File, f.Key, nil
}

// Path is the reverse of Key.Path.
func (o *Opener) Path(ctx context.Context, hidden string, box []byte) (string, error) {
	if len(box) == 0 && !o.keys.Strict() {
		return hidden, nil
	}
	path, err := o.open(ctx, contentPath, box)
	return string(path), err
}

func decode[T any](ctx context.Context, o *Opener, box []byte) (*T, error) {
	v := new(T)
	if err := o.openJSON(ctx, contentBody, box, v); err != nil {
		return nil, err
	}
	return v, nil
}

func (o *Opener) openJSON(ctx context.Context, c sealedField, box []byte, v any) error {
	plain, err := o.open(ctx, c, box)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(plain, v); err != nil {
		return fmt.Errorf("decode %s: %w", c, err)
	}
	return nil
}

// open returns the content of a box, which it overwrites.
func (o *Opener) open(ctx context.Context, c sealedField, box []byte) ([]byte, error) {
	if n := keyOf(box); n != o.last.number || n == 0 {
		var err error
		if o.last, err = o.keys.Get(ctx, n); err != nil {
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
		return nil, fmt.Errorf("content sealed with key %d is damaged", o.last.number)
	}
	return plain, nil
}
