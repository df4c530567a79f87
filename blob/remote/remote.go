// Package remote stores contents of blobs in a bucket of an S3-compatible service.
//
// A bucket belongs to one state: the first server that uses it writes an owner file, and servers
// of other states refuse it. While the service cannot be reached, each operation fails with
// berth.CodeUnavailable and changes nothing; the next one tries again.
package remote

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	gcaws "gocloud.dev/aws"
	cloud "gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// A Location is a parsed URL of a bucket.
type Location struct {
	bucket   string
	prefix   string // of all keys; empty or ending with a slash
	endpoint string // empty for AWS
	path     bool   // the bucket's name is part of the path, not of the host
	sse      types.ServerSideEncryption
	kmsKey   string
	rest     url.Values // for gcaws.V2ConfigFromURLParams
}

// Parse parses the URL of a bucket: s3://BUCKET?region=…&prefix=…&endpoint=…. The parameters are
// those of gocloud.dev/blob/s3blob. It returns an error for a URL with credentials, which belong
// in the environment. It does not contact the service.
func Parse(text string) (*Location, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("not a URL such as s3://my-bucket?region=eu-central-1") // err quotes the text, which may contain a secret
	}
	switch {
	case u.Scheme != s3blob.Scheme:
		return nil, fmt.Errorf("the scheme is %q, want s3, as in s3://my-bucket?region=eu-central-1", u.Scheme)
	case u.User != nil:
		return nil, fmt.Errorf("the URL contains credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a role or a profile")
	case u.Host == "":
		return nil, fmt.Errorf("the URL has no bucket, as in s3://my-bucket")
	case strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("the URL has a path; write s3://%s?prefix=%s/", u.Host, strings.Trim(u.Path, "/"))
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("malformed parameters")
	}
	l := &Location{bucket: u.Host, rest: q}
	take := func(key string) string {
		defer q.Del(key)
		return q.Get(key)
	}
	if l.prefix = strings.Trim(take("prefix"), "/"); l.prefix != "" {
		l.prefix += "/"
	}
	if l.endpoint = take("endpoint"); l.endpoint != "" {
		if e, err := url.Parse(l.endpoint); err != nil || e.Host == "" || e.User != nil || (e.Scheme != "http" && e.Scheme != "https") {
			return nil, fmt.Errorf("endpoint: want a URL such as https://s3.example.com")
		}
		l.path = true
	}
	for _, key := range []string{"use_path_style", "s3ForcePathStyle"} {
		if text := take(key); text != "" {
			if l.path, err = strconv.ParseBool(text); err != nil {
				return nil, fmt.Errorf("%s: want true or false", key)
			}
		}
	}
	if sse := take("ssetype"); sse != "" {
		if l.sse = encryption(sse); l.sse == "" {
			return nil, fmt.Errorf("ssetype: %q is not one of AES256, aws:kms, aws:kms:dsse", sse)
		}
	}
	if l.kmsKey = take("kmskeyid"); l.kmsKey != "" && l.sse != types.ServerSideEncryptionAwsKms && l.sse != types.ServerSideEncryptionAwsKmsDsse {
		return nil, fmt.Errorf("kmskeyid needs ssetype=aws:kms")
	}
	for key := range q {
		if !parameters[key] {
			return nil, fmt.Errorf("unknown parameter %q", key)
		}
	}
	return l, nil
}

// parameters are those that gcaws.V2ConfigFromURLParams knows and that make sense here.
var parameters = map[string]bool{"region": true, "profile": true, "role": true, "dualstack": true, "fips": true,
	"request_checksum_calculation": true, "response_checksum_validation": true}

func encryption(text string) types.ServerSideEncryption {
	for _, v := range []types.ServerSideEncryption{types.ServerSideEncryptionAes256, types.ServerSideEncryptionAwsKms, types.ServerSideEncryptionAwsKmsDsse} {
		if strings.EqualFold(text, string(v)) {
			return v
		}
	}
	return ""
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
	direct *s3.Client // for the owner file
	client *s3.Client // fails until the owner is verified
	opts   s3blob.Options

	verified atomic.Bool // the owner

	mu       sync.Mutex // held while the owner is checked
	failed   error      // of the last check
	failedAt time.Time
}

// Options are a Bucket's parts.
type Options struct {
	At    *Location
	Owner string       // the id of the state whose contents it stores
	Claim bool         // become the owner of an empty bucket that has none; for a state's first use of it
	Log   *slog.Logger // default slog.Default
}

// Open returns a bucket. It reads credentials from the environment and AWS's shared files, and
// does not contact the service.
func Open(ctx context.Context, o Options) (*Bucket, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	config, err := gcaws.V2ConfigFromURLParams(ctx, o.At.rest)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", o.At, err)
	}
	if config.Region == "" {
		config.Region = "us-east-1"
	}
	config.HTTPClient = newHTTPClient()
	config.Logger = logging.LoggerFunc(func(class logging.Classification, format string, v ...any) {
		o.Log.Debug("the S3 client logged a message", "class", string(class), "message", fmt.Sprintf(format, v...))
	})
	config.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(s *retry.StandardOptions) { s.MaxAttempts, s.MaxBackoff = attempts, maxBackoff })
	}
	b := &Bucket{at: o.At, owner: o.Owner, claims: o.Claim}
	b.opts = s3blob.Options{EncryptionType: o.At.sse, KMSEncryptionID: o.At.kmsKey, RequestChecksumCalculation: config.RequestChecksumCalculation}
	common := func(s *s3.Options) {
		s.UsePathStyle = o.At.path
		s.DisableLogOutputChecksumValidationSkipped = true
		if o.At.endpoint != "" {
			s.BaseEndpoint = &o.At.endpoint
		}
	}
	b.direct = s3.NewFromConfig(config, common, func(s *s3.Options) { s.APIOptions = append(s.APIOptions, b.translate) })
	b.client = s3.NewFromConfig(config, common, func(s *s3.Options) { s.APIOptions = append(s.APIOptions, b.translate, b.guard) })
	return b, nil
}

// Retries of one operation. They bound how long a request waits for a service that is down.
const (
	attempts   = 3
	maxBackoff = time.Second
)

// String returns the bucket's name and prefix.
func (b *Bucket) String() string { return b.at.String() }

// Section returns the part of the bucket for contents of one kind. The caller closes it.
func (b *Bucket) Section(ctx context.Context, name string) (*cloud.Bucket, error) {
	opts := b.opts
	bucket, err := s3blob.OpenBucket(ctx, b.client, b.at.bucket, &opts)
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", name, b, err)
	}
	return cloud.PrefixedBucket(bucket, b.at.prefix+name+"/"), nil
}
