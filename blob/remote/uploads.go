package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// AbortUploads aborts the multipart uploads that were started before a time. A server that was
// killed leaves them, and the service stores their parts.
func (b *Bucket) AbortUploads(ctx context.Context, before time.Time) error {
	pages := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{Bucket: &b.at.bucket, Prefix: &b.at.prefix})
	var failed error
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list uploads of %s: %w", b, err)
		}
		for _, u := range page.Uploads {
			if u.Initiated == nil || !u.Initiated.Before(before) {
				continue
			}
			_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.at.bucket, Key: u.Key, UploadId: u.UploadId})
			if err != nil && apiCode(err) != "NoSuchUpload" {
				failed = errors.Join(failed, fmt.Errorf("abort upload in %s: %w", b, err))
			}
		}
	}
	return failed
}
