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

// sealMark begins every encrypted_content of this server's making; what begins
// otherwise is a provider's.
const sealMark = "berth1."

// A sealer makes the encrypted_content of items, which clients carry and cannot
// read: AES-256-GCM under the server's key, bound to the project and to the type of
// the item. It is safe for concurrent use.
type sealer struct{ aead cipher.AEAD }

func newSealer(key [32]byte) sealer {
	if key == [32]byte{} {
		rand.Read(key[:]) // never fails
	}
	return sealer{seal.New(key)}
}

// seal returns v, which marshals, as encrypted_content.
func (s sealer) seal(p berth.ProjectID, kind berth.ItemType, v any) string {
	plain, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("transcript: seal %T: %v", v, err))
	}
	return sealMark + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, boundTo(p, kind)))
}

// open reads what seal returned for the same project and type into v. Anything
// else is an error for the client.
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
			return json.Unmarshal(plain, v)
		}
	}
	return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_encrypted_content", Param: "input",
		Message: fmt.Sprintf("The encrypted content for item %s could not be verified. Reason: Encrypted content could not be decrypted or parsed.", it.ID())}
}

// boundTo returns the additional data of a box: what it belongs to.
func boundTo(p berth.ProjectID, kind berth.ItemType) []byte {
	return []byte(string(p) + "\x00" + string(kind))
}
