package rule

import "maps"

// Item allows an item with these fields. It also checks the fields that items have in
// common, even in types of items without them.
func Item(own Fields, required ...string) Rule {
	all := Fields{
		"id": Text(1, 256), "type": AnyText, "call_id": Text(1, 256), "role": AnyText,
		"status": OneOf("in_progress", "completed", "incomplete"),
	}
	maps.Copy(all, own)
	return closed(all, func(obj map[string]any) []string { return ItemFields(itemType(obj)) }, required...)
}

// Call allows an item that is a call or the output of one.
func Call(own Fields, required ...string) Rule {
	all := Fields{"caller": Caller}
	maps.Copy(all, own)
	return Item(all, append(required, "call_id")...)
}

// Caller allows the "caller" of a call: the model, or a program.
var Caller = ByType(map[string]Rule{"direct": AnyObject,
	"program": OpenObject(Fields{"type": AnyText, "caller_id": Text(1, 64)}, "caller_id")})

// MaxOutput is the maximum length of the output of a client's tool, in characters.
const MaxOutput = 10 << 20

// Output allows a string, or parts as in a user's message.
func Output(at string, v any) error {
	if _, ok := v.(string); ok {
		return Text(0, MaxOutput)(at, v)
	}
	if _, ok := v.([]any); !ok {
		return WrongType(at, "one of a string or an array", v)
	}
	return List(ByType(InputParts), 0)(at, v)
}

// Part allows a part of a message with these fields. It also checks the fields that
// parts have in common, even in types of parts without them.
func Part(own Fields, required ...string) Rule {
	all := Fields{
		"type": AnyText, "text": AnyText, "refusal": AnyText, "annotations": List(AnyObject, 0),
		"logprobs": List(AnyObject, 0),
		"detail":   AnyText, "image_url": AnyText, "file_id": AnyText, "file_data": AnyText, "file_url": AnyText,
		"filename": AnyText,
	}
	maps.Copy(all, own)
	return closed(all, func(obj map[string]any) []string {
		kind, _ := obj["type"].(string)
		return PartFields(kind)
	}, required...)
}

// InputParts are the parts of a user's message, by type.
var InputParts = map[string]Rule{
	"input_text": Part(Fields{}, "text"),
	"input_image": OneSource([]string{"image_url", "file_id"}, Part(Fields{
		"image_url": ImageURL, "file_id": Text(1, 256), "detail": OneOf("auto", "low", "high", "original"),
	})),
	"input_file": OneSource([]string{"file_data", "file_id", "file_url"}, Part(Fields{
		"file_id": Text(1, 256), "filename": Text(0, 1024), "detail": OneOf("auto", "low", "high"), "file_url": WebURL,
	})),
}

// OutputParts are the parts of a model's message, by type.
var OutputParts = map[string]Rule{
	"output_text": Part(Fields{}, "text"),
	"refusal":     Part(Fields{}, "refusal"),
}
