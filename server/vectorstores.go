package server

import (
	"context"
	"io"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/vectorstore/document"
)

// openVectorStores opens the vector stores.
func openVectorStores(b *base, uploaded *files.Service, models *engine.Forwarder) *vectorstore.Service {
	config := b.Config.Vectors
	opts := vectorstore.Options{Objects: b.db, Files: uploaded, Quota: within(b.space, diskspace.Files,
		b.quota.Store),
		Text: func(ctx context.Context, name string, content io.Reader) (string, error) {
			return document.Text(ctx, document.Child{}, name, content)
		},
		Memory: int64(config.Memory), MaxText: int(config.MaxText), Log: b.Log}
	if config.EmbeddingModel != "" {
		opts.Embedder = embedder{config.EmbeddingModel, models}
	}
	return vectorstore.New(opts)
}

// An embedder embeds texts with a model.
type embedder struct {
	model     string
	upstreams *engine.Forwarder
}

// Model implements vectorstore.Embedder.
func (e embedder) Model() string { return e.model }

// Embed implements vectorstore.Embedder.
func (e embedder) Embed(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	return e.upstreams.Embed(ctx, p, e.model, texts)
}
