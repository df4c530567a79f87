package sealed

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/store"
)

// Export writes keys to a new file, which OpenFile opens as the same ring. It omits keys that are
// erased, so that their rows are unreadable with the file too.
func (k *Keys) Export(ctx context.Context, path string, numbers iter.Seq2[int64, error]) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("export keys: %w", err)
		}
	}()
	g := k.now.Load()
	w, err := keyring.Create(path, g.ring.ID(), g.fileTag())
	if err != nil {
		return err
	}
	for n, err := range numbers {
		var key [32]byte
		if err == nil && n == 0 {
			continue // of rows that are not sealed
		}
		if err == nil {
			key, err = g.ring.Get(ctx, n)
		}
		if err == nil {
			err = w.Put(n, key)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return errors.Join(err, w.Abort())
		}
	}
	return w.Commit()
}
