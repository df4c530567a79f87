package config

import (
	"strings"
	"testing"
)

// A cluster needs what its servers share, and an address.
func TestClusterConfig(t *testing.T) {
	const shared = "postgres://berth@db/berth"
	for name, tc := range map[string]struct {
		url, blobs string
		cluster    Cluster
		want       string
	}{
		"none": {},
		"complete": {url: shared, blobs: "s3://b",
			cluster: Cluster{Listen: "0.0.0.0:7443", Address: "10.0.0.1:7443"}},
		"one address": {url: shared, blobs: "s3://b", cluster: Cluster{Listen: "10.0.0.1:7443"}},
		"no database": {blobs: "s3://b", cluster: Cluster{Listen: "10.0.0.1:7443"}, want: "set store"},
		"no bucket":   {url: shared, cluster: Cluster{Listen: "10.0.0.1:7443"}, want: "set blobs"},
		"any address": {url: shared, blobs: "s3://b", cluster: Cluster{Listen: "0.0.0.0:7443"},
			want: "cluster.address"},
		"no port": {url: shared, blobs: "s3://b",
			cluster: Cluster{Listen: "0.0.0.0:7443", Address: "host"}, want: "cluster.address"},
		"address, no listen": {cluster: Cluster{Address: "10.0.0.1:7443"}, want: "cluster.listen"},
	} {
		c := &Config{Store: Store{URL: tc.url}, Blobs: tc.blobs, Cluster: tc.cluster}
		err := c.checkCluster()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
