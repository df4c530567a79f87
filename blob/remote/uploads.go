package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// uploadsPage is the number of uploads listed at a time.
const uploadsPage = 1000

// AbortUploads aborts the multipart uploads that were started before a time. A server that was
// killed leaves them, and the service stores their parts.
func (b *Bucket) AbortUploads(ctx context.Context, before time.Time) error {
	if err := b.verify(ctx); err != nil {
		return err
	}
	var failed error
	_, pages := newListing(ctx)
	for page := (minio.ListMultipartUploadsResult{IsTruncated: true}); page.IsTruncated; {
		err := pages.request(page.NextKeyMarker + "\x00" + page.NextUploadIDMarker)
		if err != nil {
			return fmt.Errorf("list uploads of %s: %w", b, err)
		}
		page, err = b.core().ListMultipartUploads(ctx, b.at.bucket, b.at.prefix, page.NextKeyMarker,
			page.NextUploadIDMarker, "", uploadsPage)
		if err != nil {
			return fmt.Errorf("list uploads of %s: %w", b, b.translate(ctx, err))
		}
		for _, u := range page.Uploads {
			pages.found()
			if !u.Initiated.Before(before) || !strings.HasPrefix(u.Key, b.at.prefix) {
				continue
			}
			err := b.core().AbortMultipartUpload(ctx, b.at.bucket, u.Key, u.UploadID)
			if err != nil && apiCode(err) != minio.NoSuchUpload {
				failed = errors.Join(failed, fmt.Errorf("abort upload in %s: %w", b, b.translate(ctx, err)))
			}
		}
	}
	return failed
}
