package server

import (
	"context"
	"io"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/routing"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/vectorstore/document"
)

// openVectorStores opens the vector stores. The engine, which embeds their texts, does not
// exist yet: startEngine sets the embedder's.
func openVectorStores(b *base, data *blobs) {
	config := b.Config.Vectors
	opts := vectorstore.Options{Objects: b.db, Files: data.files, Quota: within(b.space, diskspace.Files,
		b.quota.Store),
		Text: func(ctx context.Context, name string, content io.Reader) (string, error) {
			return document.Text(ctx, document.Child{}, name, content)
		},
		Memory: int64(config.Memory), MaxText: int(config.MaxText), Log: b.Log}
	if config.EmbeddingModel != "" {
		data.embedder = &embedder{model: config.EmbeddingModel}
		opts.Embedder = data.embedder
	}
	data.vectors = vectorstore.New(opts)
}

// An embedder embeds texts with a model of the engine's.
type embedder struct {
	model  string
	engine *engine.Engine
}

// use sets the engine. It returns an error if no upstream has the model.
func (e *embedder) use(config *config.Config, models *model.Router, by *engine.Engine) error {
	if e == nil {
		return nil
	}
	for _, err := range routing.Unrouted(models, "", e.model) {
		return config.In(err)
	}
	e.engine = by
	return nil
}

// Model implements vectorstore.Embedder.
func (e *embedder) Model() string { return e.model }

// Embed implements vectorstore.Embedder.
func (e *embedder) Embed(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	return e.engine.Embed(ctx, p, e.model, texts)
}
