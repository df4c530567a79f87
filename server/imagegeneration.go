package server

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool/imagegeneration"
)

// images generates images with models of upstreams.
type images struct{ upstreams *engine.Forwarder }

var _ imagegeneration.Images = images{}

// Generate implements imagegeneration.Images.
func (i images) Generate(ctx context.Context, caller berth.Caller, name string,
	fields map[string]json.RawMessage) iter.Seq2[[]byte, error] {
	return i.upstreams.Images(ctx, caller, name, model.Forwarded{Endpoint: "images/generations", Fields: fields})
}

// Edit implements imagegeneration.Images.
func (i images) Edit(ctx context.Context, caller berth.Caller, name string, fields map[string]json.RawMessage,
	pictures []imagegeneration.Picture, mask *imagegeneration.Picture) iter.Seq2[[]byte, error] {
	edit := model.Forwarded{Endpoint: "images/edits", Fields: fields}
	field := "image[]"
	if len(pictures) == 1 {
		field = "image" // the only one that servers with a single image know
	}
	for n, p := range pictures {
		edit.Files = append(edit.Files, formFile(field, fmt.Sprintf("image-%d", n+1), p))
	}
	if mask != nil {
		edit.Files = append(edit.Files, formFile("mask", "mask", *mask))
	}
	return i.upstreams.Images(ctx, caller, name, edit)
}

// formFile returns a picture as a file of a form. name is without its suffix.
func formFile(field, name string, p imagegeneration.Picture) model.FormFile {
	return model.FormFile{Field: field, Name: name + "." + strings.TrimPrefix(p.MediaType, "image/"),
		MediaType: p.MediaType, Content: p.Content}
}
