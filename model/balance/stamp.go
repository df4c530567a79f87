package balance

import (
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model/dialogue"
)

// stampMark is the prefix of encrypted_content that only one upstream can read. The
// upstream's name follows, then a point. Reasoning sealed by Berth's own providers has
// no stamp: any upstream with the vendor's model can read it.
const stampMark = "berth.upstream.1."

// stamp adds the upstream's name to reasoning that it encrypted.
func (u *Upstream) stamp(it berth.Item) berth.Item {
	content := encrypted(it)
	if u.opts.Anonymous || content == "" || dialogue.IsSealed(content) {
		return it
	}
	return withEncrypted(it, stampMark+u.opts.Name+"."+content)
}

// unstamp returns items for the upstream: its own stamps are removed, and so is
// content that another upstream encrypted.
func (u *Upstream) unstamp(items []berth.Item) []berth.Item {
	var out []berth.Item
	for i, it := range items {
		name, content, ok := stampOf(it)
		if !ok {
			continue
		}
		if out == nil {
			out = append(out, items...)
		}
		if name != u.opts.Name || u.opts.Anonymous {
			content = ""
		}
		out[i] = withEncrypted(it, content)
	}
	if out == nil {
		return items
	}
	return out
}

// lastStamp returns the upstream of the last stamp, or "".
func lastStamp(items []berth.Item) string {
	for i := len(items) - 1; i >= 0; i-- {
		if name, _, ok := stampOf(items[i]); ok {
			return name
		}
	}
	return ""
}

func stampOf(it berth.Item) (name, content string, ok bool) {
	rest, ok := strings.CutPrefix(encrypted(it), stampMark)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}

// encrypted returns the encrypted_content of reasoning, or "".
func encrypted(it berth.Item) string {
	var r struct {
		EncryptedContent string `json:"encrypted_content"`
	}
	if it.Type() != berth.ItemReasoning || it.Decode(&r) != nil {
		return ""
	}
	return r.EncryptedContent
}

func withEncrypted(it berth.Item, content string) berth.Item {
	var value any
	if content != "" {
		value = content
	}
	out, err := it.With(map[string]any{"encrypted_content": value})
	if err != nil {
		panic("balance: decoded item is not JSON: " + err.Error())
	}
	return out
}
