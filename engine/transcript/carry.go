package transcript

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/berth-run/berth"
)

// clearMark begins what Unseal makes of encrypted_content.
const clearMark = "berth0."

// Unseal returns a document of a project's in which the encrypted_content of items
// that this server has sealed is in the clear, for another server to seal.
func (s *Service) Unseal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return rewriteSealed(doc, func(kind berth.ItemType, content string) (string, error) {
		text, ours := strings.CutPrefix(content, sealMark)
		if !ours {
			return content, nil
		}
		box, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return "", err
		}
		plain, err := s.seals.aead.Open(nil, nil, box, boundTo(p, kind))
		return clearMark + string(plain), err
	})
}

// Seal is the reverse of Unseal, for a project of this server.
func (s *Service) Seal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return rewriteSealed(doc, func(kind berth.ItemType, content string) (string, error) {
		switch plain, ours := strings.CutPrefix(content, clearMark); {
		case ours && json.Valid([]byte(plain)):
			return s.seals.seal(p, kind, json.RawMessage(plain)), nil
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
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		return nil, err
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
