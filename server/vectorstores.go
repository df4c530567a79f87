package server

import (
	"context"
	"io"
	"sync"

	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/vectorstore/document"
)

// startVectorStores opens the vector stores and reads the files that were added to them.
func (s *Server) startVectorStores(b *base, data *blobs) {
	config := b.Config.Vectors
	data.vectors = vectorstore.New(vectorstore.Options{Objects: b.db, Files: data.files, Quota: within(b.space, diskspace.Files, b.quota.Store),
		Text: func(ctx context.Context, name string, content io.Reader) (string, error) {
			return document.Text(ctx, document.Child{}, name, content)
		},
		Memory: int64(config.Memory), MaxText: int(config.MaxText), Log: b.Log})
	ctx, cancel := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() { data.vectors.Run(ctx) })
	s.later(func(context.Context) error {
		cancel()
		worker.Wait()
		return nil
	})
}
