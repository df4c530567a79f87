package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// clearMark begins what Unseal makes of encrypted_content.
const clearMark = "berth0."

// Before returns what a stored response found: the items of its conversation, or
// nothing for one that is in none. What it continues by previous_response_id is
// the store's to tell.
func (e *Engine) Before(ctx context.Context, rec *store.Response) ([]berth.Item, error) {
	if rec.Body.Conversation == nil {
		return nil, nil
	}
	c, err := sourceOfStored(rec).read(ctx, e, rec.Project)
	return c.items, err
}

// Unseal returns a document of a project's in which the encrypted_content of items
// that this server has sealed is in the clear, for another server to seal.
func (e *Engine) Unseal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return rewriteSealed(doc, func(kind berth.ItemType, content string) (string, error) {
		text, ours := strings.CutPrefix(content, sealMark)
		if !ours {
			return content, nil
		}
		box, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return "", err
		}
		plain, err := e.seals.aead.Open(nil, nil, box, bound(p, kind))
		return clearMark + string(plain), err
	})
}

// Seal is the reverse of Unseal, for a project of this server.
func (e *Engine) Seal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return rewriteSealed(doc, func(kind berth.ItemType, content string) (string, error) {
		switch plain, ours := strings.CutPrefix(content, clearMark); {
		case ours && json.Valid([]byte(plain)):
			return e.seals.seal(p, kind, json.RawMessage(plain)), nil
		case ours, strings.HasPrefix(content, sealMark):
			return "", berth.Errorf(berth.CodeInvalid, "The content of a sealed item is not readable.")
		}
		return content, nil
	})
}

// rewriteSealed changes the encrypted_content of all items in a document, however
// deep they are.
func rewriteSealed(doc json.RawMessage, change func(kind berth.ItemType, content string) (string, error)) (json.RawMessage, error) {
	if !bytes.Contains(doc, []byte(`"encrypted_content"`)) {
		return doc, nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the document")
	}
	var walk func(any) error
	walk = func(node any) error {
		switch n := node.(type) {
		case []any:
			for _, v := range n {
				if err := walk(v); err != nil {
					return err
				}
			}
		case map[string]any:
			kind, _ := n["type"].(string)
			if content, ok := n["encrypted_content"].(string); ok {
				changed, err := change(berth.ItemType(kind), content)
				if err != nil {
					return err
				}
				n["encrypted_content"] = changed
			}
			for _, v := range n {
				if err := walk(v); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(tree); err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}
