// Package remote stores contents of blobs in a bucket of an S3-compatible service.
//
// A bucket belongs to one state: the first server that uses it writes an owner file, and servers
// of other states refuse it. While the service cannot be reached, each operation fails with
// berth.CodeUnavailable and changes nothing; the next one tries again.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/berth-run/berth/blob"
)

// A Location is a parsed URL of a bucket.
type Location struct {
	bucket    string
	prefix    string // of all keys; empty or ending with a slash
	region    string
	endpoint  *url.URL // nil for AWS
	path      bool     // the bucket's name is part of the path, not of the host
	dualstack bool
	checksums bool // send CRC32C, else MD5
	sse       encryption
	profile   string // of AWS's shared files; empty: look everywhere
}

// Parse parses the URL of a bucket: s3://BUCKET?region=…&prefix=…&endpoint=…. docs/blobs.md has
// all parameters. It returns an error for a URL with credentials, which belong in the environment.
// It does not contact the service.
func Parse(text string) (*Location, error) {
	u, err := url.Parse(text)
	if err != nil {
		// err quotes the text, which may contain a secret
		return nil, fmt.Errorf("not a URL such as s3://my-bucket?region=eu-central-1")
	}
	switch {
	case u.Scheme != "s3":
		return nil, fmt.Errorf("the scheme is %q, want s3, as in s3://my-bucket?region=eu-central-1", u.Scheme)
	case u.User != nil:
		return nil, fmt.Errorf(
			"the URL contains credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a role or a profile")
	case u.Host == "":
		return nil, fmt.Errorf("the URL has no bucket, as in s3://my-bucket")
	case strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("the URL has a path; write s3://%s?prefix=%s/", u.Host, strings.Trim(u.Path, "/"))
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("malformed parameters")
	}
	l := &Location{bucket: u.Host, checksums: true}
	for key, values := range q {
		set := parameters[key]
		if set == nil {
			return nil, fmt.Errorf("unknown parameter %q", key)
		}
		if err := set(l, values[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if l.endpoint != nil && !q.Has("use_path_style") {
		l.path = true
	}
	if l.sse.key != "" && !strings.HasPrefix(l.sse.kind, "aws:kms") {
		return nil, fmt.Errorf("kmskeyid needs ssetype=aws:kms")
	}
	return l, nil
}

// parameters maps the parameters of a URL to what sets them.
var parameters = map[string]func(l *Location, value string) error{
	"region":  func(l *Location, value string) error { l.region = value; return nil },
	"profile": func(l *Location, value string) error { l.profile = value; return nil },
	"prefix": func(l *Location, value string) error {
		if l.prefix = strings.Trim(value, "/"); l.prefix != "" {
			l.prefix += "/"
		}
		return nil
	},
	"endpoint": func(l *Location, value string) error {
		e, err := url.Parse(value)
		if err != nil || e.Host == "" || e.User != nil || (e.Scheme != "http" && e.Scheme != "https") ||
			strings.Trim(e.Path, "/") != "" {
			return fmt.Errorf("want a URL such as https://s3.example.com")
		}
		l.endpoint = e
		return nil
	},
	"use_path_style": func(l *Location, value string) error { return parseBool(&l.path, value) },
	"dualstack":      func(l *Location, value string) error { return parseBool(&l.dualstack, value) },
	"ssetype": func(l *Location, value string) error {
		i := slices.IndexFunc(encryptions, func(kind string) bool { return strings.EqualFold(kind, value) })
		if i < 0 {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(encryptions, ", "))
		}
		l.sse.kind = encryptions[i]
		return nil
	},
	"kmskeyid": func(l *Location, value string) error { l.sse.key = value; return nil },
	"request_checksum_calculation": func(l *Location, value string) error {
		if value != "when_required" && value != "when_supported" {
			return fmt.Errorf("want when_required or when_supported")
		}
		l.checksums = value == "when_supported"
		return nil
	},
	"role": func(*Location, string) error {
		return fmt.Errorf(
			"is not supported; set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, or a profile whose credential_process assumes the role")
	},
	"fips": func(*Location, string) error {
		return fmt.Errorf("is not supported; set endpoint=https://s3-fips.REGION.amazonaws.com")
	},
}

func parseBool(to *bool, value string) (err error) {
	if *to, err = strconv.ParseBool(value); err != nil {
		return fmt.Errorf("want true or false")
	}
	return nil
}

// An encryption by the service. The zero value requests none.
type encryption struct{ kind, key string }

var encryptions = []string{"AES256", "aws:kms", "aws:kms:dsse"}

// Type implements encrypt.ServerSide.
func (e encryption) Type() encrypt.Type {
	if e.kind == "AES256" {
		return encrypt.S3
	}
	return encrypt.KMS
}

// Marshal implements encrypt.ServerSide. The client's own types lack aws:kms:dsse.
func (e encryption) Marshal(h http.Header) {
	h.Set("X-Amz-Server-Side-Encryption", e.kind)
	if e.key != "" {
		h.Set("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", e.key)
	}
}

// String returns the bucket without parameters of the connection: s3://my-bucket/prefix.
func (l *Location) String() string {
	return strings.TrimSuffix("s3://"+l.bucket+"/"+l.prefix, "/")
}

// A Bucket is a bucket of an S3-compatible service, or the part of it below a prefix. It is safe
// for concurrent use.
type Bucket struct {
	at     *Location
	owner  string
	claims bool
	client *minio.Client

	verified atomic.Bool // the owner

	mu       sync.Mutex // held while the owner is checked
	failed   error      // of the last check
	failedAt time.Time
}

// Options are a Bucket's parts.
type Options struct {
	At    *Location
	Owner string // the id of the state whose contents it stores
	Claim bool   // become the owner of an empty bucket that has none; for a state's first use of it
}

// attempts is the number of requests for one operation. It bounds how long a client waits for a
// service that is down: the pauses between them are at most a second.
const attempts = 3

// Open returns a bucket. It does not contact the service, and reads credentials when they are first
// needed.
func Open(o Options) (*Bucket, error) {
	opts := &minio.Options{Creds: findCredentials(o.At.profile), Secure: true, Transport: pager{newTransport()},
		Region:          o.At.region,
		TrailingHeaders: o.At.checksums, MaxRetries: attempts, BucketLookup: minio.BucketLookupDNS}
	if opts.Region == "" {
		opts.Region = cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1")
	}
	host := "s3.amazonaws.com"
	if o.At.endpoint != nil {
		host, opts.Secure = o.At.endpoint.Host, o.At.endpoint.Scheme == "https"
	}
	if o.At.path {
		opts.BucketLookup = minio.BucketLookupPath
	}
	client, err := minio.New(host, opts)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", o.At, err)
	}
	client.SetS3EnableDualstack(o.At.dualstack)
	return &Bucket{at: o.At, owner: o.Owner, claims: o.Claim, client: client}, nil
}

// String returns the bucket's name and prefix.
func (b *Bucket) String() string { return b.at.String() }

// Section returns the part of the bucket for contents of one kind. Its operations fail until the
// owner of the bucket is verified.
func (b *Bucket) Section(name string) blob.Storage {
	return &section{bucket: b, prefix: b.at.prefix + name + "/"}
}

// core returns the client's interface with one method for each request.
func (b *Bucket) core() minio.Core { return minio.Core{Client: b.client} }

// put returns the options of new objects. The client adds a checksum to each part of an object.
func (b *Bucket) put(contentType string) minio.PutObjectOptions {
	opts := minio.PutObjectOptions{ContentType: contentType, SendContentMd5: !b.at.checksums}
	if b.at.sse.kind != "" {
		opts.ServerSideEncryption = b.at.sse
	}
	return opts
}

// putWhole saves an object with one request.
func (b *Bucket) putWhole(ctx context.Context, key string, content []byte, opts minio.PutObjectOptions) error {
	if b.at.checksums {
		sum := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
		opts.UserMetadata = map[string]string{"X-Amz-Checksum-Crc32c": base64.StdEncoding.EncodeToString(
			binary.BigEndian.AppendUint32(nil, sum))}
	}
	opts.DisableMultipart = true
	_, err := b.client.PutObject(ctx, b.at.bucket, key, bytes.NewReader(content), int64(len(content)), opts)
	return b.translate(ctx, err)
}
