package transcript

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/berth-run/berth"
)

// clearMark is the prefix of encrypted_content that Unseal has decrypted.
const clearMark = "berth0."

// Unseal decrypts the encrypted_content that this server has sealed in a document of a
// project, so that another server can seal it with its own key.
func (s *Service) Unseal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return rewriteSealed(doc, func(kind berth.ItemType, content string) (string, error) {
		text, ours := strings.CutPrefix(content, sealMark)
		if !ours {
			return content, nil
		}
		box, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return "", fmt.Errorf("decode sealed content: %w", err)
		}
		plain, err := s.seals.aead.Open(nil, nil, box, boundTo(p, kind))
		if err != nil {
			return "", fmt.Errorf("decrypt sealed content: %w", err)
		}
		return clearMark + string(plain), nil
	})
}

// Seal reverses Unseal, for a project of this server.
func (s *Service) Seal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return rewriteSealed(doc, func(kind berth.ItemType, content string) (string, error) {
		switch plain, ours := strings.CutPrefix(content, clearMark); {
		case ours && json.Valid([]byte(plain)):
			return s.seals.seal(p, kind, json.RawMessage(plain)), nil
		case ours, strings.HasPrefix(content, sealMark):
			return "", berth.Errorf(berth.CodeInvalid, "The encrypted content of an item is not valid.")
		}
		return content, nil
	})
}

// rewriteSealed changes the encrypted_content of all items in a document, at any depth.
func rewriteSealed(doc json.RawMessage, change func(kind berth.ItemType, content string) (string,
	error)) (json.RawMessage, error) {
	if !bytes.Contains(doc, []byte(`"encrypted_content"`)) {
		return doc, nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data follows the document")
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
	if err := walk(decoded); err != nil {
		return nil, err
	}
	return json.Marshal(decoded)
}
