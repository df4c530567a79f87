package chat

import "github.com/berth-run/berth/internal/jsonscan"

// textChunk decodes a chunk that only adds text to the answer, as nearly all do, in a
// fraction of the time of encoding/json. It returns false for all others, and for those
// that are not JSON where it looks.
func textChunk(data []byte) (model, tier, text string, ok bool) {
	chosen := false
	ok = jsonscan.Fields(data, func(name, value []byte) (ok bool) {
		switch string(name) {
		case "model":
			model, ok = decodeString(value)
		case "service_tier":
			tier, ok = decodeString(value)
		case "choices":
			text, ok = textChoice(value)
			ok = ok && !chosen
			chosen = true
		case "usage", "error":
			ok = isNull(value)
		default:
			ok = isPlain(name)
		}
		return ok
	})
	return model, tier, text, ok && chosen && text != ""
}

// textChoice decodes a list of one choice.
func textChoice(list []byte) (text string, ok bool) {
	n := 0
	ok = jsonscan.Elements(list, func(choice []byte) bool {
		n++
		return n == 1 && jsonscan.Fields(choice, func(name, value []byte) (ok bool) {
			switch string(name) {
			case "index":
				return len(value) == 1 && value[0] == '0'
			case "delta":
				text, ok = textDelta(value)
				return ok
			case "message", "finish_reason", "logprobs":
				return isNull(value)
			}
			return isPlain(name)
		})
	})
	return text, ok
}

func textDelta(delta []byte) (text string, ok bool) {
	ok = jsonscan.Fields(delta, func(name, value []byte) (ok bool) {
		switch string(name) {
		case "content":
			text, ok = decodeString(value)
			return ok
		case "role":
			return true
		}
		return isPlain(name) && isNull(value)
	})
	return text, ok
}

// isPlain reports whether encoding/json, which ignores case, cannot take an unknown name for
// a known one.
func isPlain(name []byte) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

func isNull(value []byte) bool { return string(value) == "null" }

// decodeString decodes a string, or null as an empty one.
func decodeString(value []byte) (string, bool) {
	if isNull(value) {
		return "", true
	}
	return jsonscan.Unquote(value)
}
