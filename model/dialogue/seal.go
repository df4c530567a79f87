package dialogue

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// sealed is the prefix of every encrypted_content that Seal returns. It identifies the
// value outside Berth too.
const sealed = "berth.vendor.1."

// envelope is the content of a seal.
type envelope struct {
	Vendor  string          `json:"vendor"`
	Family  string          `json:"family"`
	Content json.RawMessage `json:"content"`
}

// Seal returns the encrypted_content of a reasoning item. It holds content that one
// vendor's family of models needs back, such as the signature of its thoughts. It is
// encoded, not secret. content must marshal.
func Seal(vendor, family string, content any) string {
	raw, err := json.Marshal(content)
	if err == nil {
		raw, err = json.Marshal(envelope{vendor, family, raw})
	}
	if err != nil {
		panic("dialogue: Seal: " + err.Error())
	}
	return sealed + base64.RawURLEncoding.EncodeToString(raw)
}

// Unseal decodes a result of Seal for the same vendor and family into content. It
// reports whether encrypted was one.
func Unseal(vendor, family, encrypted string, content any) bool {
	text, ok := strings.CutPrefix(encrypted, sealed)
	if !ok {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var e envelope
	return err == nil && json.Unmarshal(raw, &e) == nil && e.Vendor == vendor && e.Family == family &&
		json.Unmarshal(e.Content, content) == nil
}

// IsSealed reports whether encrypted came from Seal.
func IsSealed(encrypted string) bool { return strings.HasPrefix(encrypted, sealed) }
