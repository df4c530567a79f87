package transcript

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
)

// sealMark is the prefix of encrypted_content that a Berth server has sealed. Any other
// encrypted_content is a provider's.
const sealMark = "berth1."

// A sealer encrypts content that clients store and cannot read, as encrypted_content of
// items. It uses AES-256-GCM with the server's key, bound to the project and to the type
// of the item. It is safe for concurrent use.
type sealer struct{ aead cipher.AEAD }

func newSealer(aead cipher.AEAD) sealer {
	if aead == nil {
		var key [32]byte
		rand.Read(key[:]) // never fails
		aead = seal.New(key)
	}
	return sealer{aead}
}

// seal returns v as encrypted_content. It panics if v cannot be marshaled.
func (s sealer) seal(p berth.ProjectID, kind berth.ItemType, v any) string {
	plain, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("transcript: seal %T: %v", v, err))
	}
	return sealMark + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, boundTo(p, kind)))
}

// open decrypts the encrypted_content of an item into v. It returns an error for the
// client unless seal has made that content for the same project and type.
func (s sealer) open(p berth.ProjectID, it berth.Item, v any) error {
	var body struct {
		EncryptedContent string `json:"encrypted_content"`
	}
	if err := it.Decode(&body); err != nil {
		return err
	}
	text, ok := strings.CutPrefix(body.EncryptedContent, sealMark)
	box, err := base64.RawURLEncoding.DecodeString(text)
	if ok && err == nil {
		var plain []byte
		if plain, err = s.aead.Open(nil, nil, box, boundTo(p, it.Type())); err == nil {
			if err := json.Unmarshal(plain, v); err != nil {
				return fmt.Errorf("decode sealed content: %w", err)
			}
			return nil
		}
	}
	return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_encrypted_content", Param: "input",
		Message: fmt.Sprintf(
			"The encrypted content for item %s could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
			it.ID())}
}

// boundTo returns the additional data that binds sealed content to a project and a type.
func boundTo(p berth.ProjectID, kind berth.ItemType) []byte {
	return []byte(string(p) + "\x00" + string(kind))
}
