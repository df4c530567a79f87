package dialogue

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// sealed begins the encrypted_content of reasoning items that a Seal made. It
// says what it is to whoever meets it elsewhere.
const sealed = "berth.vendor.1."

// envelope is what a seal holds.
type envelope struct {
	Vendor  string          `json:"vendor"`
	Family  string          `json:"family"`
	Content json.RawMessage `json:"content"`
}

// Seal returns the encrypted_content of a reasoning item: content that a vendor's
// family of models, and no other, needs to have back, such as the signature of its
// thoughts. It is a secret to nobody. content must marshal.
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

// Unseal reads what Seal made for the same vendor and family. It reports whether
// there was such a thing.
func Unseal(vendor, family, encrypted string, content any) bool {
	text, ok := strings.CutPrefix(encrypted, sealed)
	if !ok {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var e envelope
	return err == nil && json.Unmarshal(raw, &e) == nil && e.Vendor == vendor && e.Family == family && json.Unmarshal(e.Content, content) == nil
}

// IsSealed reports whether a Seal made the encrypted_content.
func IsSealed(encrypted string) bool { return strings.HasPrefix(encrypted, sealed) }
