package e2e

import (
	"encoding/json"
	"fmt"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/s3test"
)

// signingProgram uses S3 as programs do: small and large objects, in parts, with odd keys, and by a presigned URL.
const signingProgram = `
import boto3, io, os, urllib.request
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError
at, config = os.environ["AT"], Config(s3={"addressing_style": "path"}, signature_version="s3v4",
    retries={"max_attempts": 1})
s3 = boto3.client("s3", endpoint_url=at, config=config)
s3.put_object(Bucket="bucket", Key="odd/a b+c(d)=é&?#.txt", Body=b"small", Metadata={"colour": "blue  sky"})
got = s3.get_object(Bucket="bucket", Key="odd/a b+c(d)=é&?#.txt")
print("small", got["Body"].read().decode(), got["Metadata"]["colour"])
print("part", s3.get_object(Bucket="bucket", Key="odd/a b+c(d)=é&?#.txt", Range="bytes=1-2")["Body"].read().decode())
print("listed", s3.list_objects_v2(Bucket="bucket", Prefix="odd/")["Contents"][0]["Key"])
data = os.urandom(11 << 20)
parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=3)
s3.upload_fileobj(io.BytesIO(data), "bucket", "large", Config=parts)
back = io.BytesIO()
s3.download_fileobj("bucket", "large", back, Config=parts)
print("large", back.getvalue() == data)
link = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "odd/a b+c(d)=é&?#.txt"}, ExpiresIn=60)
print("presigned", urllib.request.urlopen(link).read().decode())
for name, service, region in (("region", "s3", "eu-west-3"), ("service", "sqs", "us-east-1")):
    try:
        boto3.client(service, endpoint_url=at, region_name=region, config=config).list_buckets() if service == "s3" else \
            boto3.client(service, endpoint_url=at, region_name=region, config=config).list_queues()
    except Exception as e:
        print("refused", name, str(e)[:200])
`

// TestSigning has boto3, the AWS CLI and curl in a sandbox use a bucket with credentials that they do not have. They
// sign with a placeholder, and the gate signs anew. Also after the server was killed.
func TestSigning(t *testing.T) {
	packages := pythonPackages(t, pythonClient{env: "aws"})
	s3 := s3test.Start(t)
	s3.Bucket("bucket")
	to, err := url.Parse("http://" + s3.Addr)
	if err != nil {
		t.Fatal(err)
	}
	site := secureSiteOf(t, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // is signed
	}})
	s := newServerWith(t, fmt.Sprintf("containers: {network: {private: %s}}\n", site.places),
		"SSL_CERT_FILE="+site.authority)
	policy := fmt.Sprintf(`{"type":"allowlist","allowed_domains":%s,"domain_secrets":[{"type":"aws_sigv4","domain":"%s",
		"name":"AWS_ACCESS_KEY_ID","access_key_id":"%s","value":"%s","regions":["us-east-1"],"services":["s3"]}]}`,
		site.places, site.host, s3test.AccessKey, s3test.SecretKey)
	var made struct{ ID string }
	got, err := s.ask("", "", "POST", "/v1/containers", json.RawMessage(`{"name":"c","network_policy":`+policy+`}`))
	if err != nil || json.Unmarshal([]byte(got.text), &made) != nil || made.ID == "" ||
		strings.Contains(got.text, s3test.SecretKey) {
		t.Fatalf("got %d %s, %v", got.status, got.text, err)
	}
	copyIn := func(args ...string) {
		t.Helper()
		if out, errs, err := s.berth(args...); err != nil {
			t.Fatalf("%v: %v %s%s", args, err, out, errs)
		}
	}
	copyIn("cp", packages, made.ID+":/mnt/data/packages.tar")
	s.in(made.ID, "mkdir -p /tmp/p && tar -xf /mnt/data/packages.tar -C /tmp/p && rm /mnt/data/packages.tar")
	program := filepath.Join(t.TempDir(), "use.py")
	if err := os.WriteFile(program, []byte(signingProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	copyIn("cp", program, made.ID+":/mnt/data/use.py")
	if env := s.in(made.ID, "env"); !strings.Contains(env, "AWS_REGION=us-east-1") || strings.Contains(env,
		s3test.SecretKey) || strings.Contains(env, s3test.AccessKey+"\n") {
		t.Fatalf("the environment is %s", env)
	}
	out := s.in(made.ID, "cd /mnt/data && AT=https://"+site.at+" PYTHONPATH=/tmp/p python3 -W ignore use.py 2>&1 || true")
	for _, want := range []string{"small small blue  sky\n", "part ma\n", "listed odd/a b+c(d)=é&?#.txt\n", "large True\n",
		"presigned small\n", "refused region", "refused service"} {
		if !strings.Contains(out, want) {
			t.Errorf("boto3 did not print %q, but\n%s", want, out)
		}
	}
	if strings.Contains(out, s3test.SecretKey) || strings.Contains(out, s3test.AccessKey+"\n") {
		t.Errorf("the key is in %s", out)
	}
	s.kill()
	s.start()
	cli := "PYTHONPATH=/tmp/p python3 -W ignore -m awscli --endpoint-url https://" + site.at
	out = s.in(made.ID, "head -c 9000000 /dev/zero > /tmp/zero; "+cli+" s3 cp /tmp/zero s3://bucket/zero --no-progress && "+cli+
		" s3 cp s3://bucket/zero /tmp/back --no-progress && cmp /tmp/zero /tmp/back && "+cli+" s3 ls s3://bucket/zero && echo done; "+
		cli+" sts get-caller-identity 2>&1 || true")
	if !strings.Contains(out, "9000000 zero\ndone\n") {
		t.Errorf("the AWS CLI printed %s", out)
	}
	out = s.in(made.ID, `curl -s --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:any" -H `+
		`'x-amz-content-sha256: UNSIGNED-PAYLOAD' -T /etc/hostname https://`+site.at+`/bucket/curl -w '%{http_code}\n' && `+
		`curl -s --aws-sigv4 aws:amz:us-east-1:iam --user "$AWS_ACCESS_KEY_ID:any" https://`+site.at+`/bucket/curl`)
	if !strings.HasPrefix(out, "200\n") || !strings.Contains(out, `the secret does not sign for the service "iam"`) {
		t.Errorf("curl printed %s", out)
	}
	if keys := strings.Join(s3.Objects("bucket"), " "); !strings.Contains(keys, "curl") || !strings.Contains(keys, "zero") {
		t.Errorf("the bucket has %s", keys)
	}
}

// pythonPackages returns an archive of the packages of a client's environment.
func pythonPackages(t *testing.T, c pythonClient) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(c.python(t))), "lib", "python*", "site-packages"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the packages are in %v, %v", dirs, err)
	}
	archive := filepath.Join(t.TempDir(), "packages.tar")
	if out, err := exec.Command("tar", "-cf", archive, "--exclude=pip", "--exclude=setuptools", "--exclude=examples", "-C",
		dirs[0], ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return archive
}
