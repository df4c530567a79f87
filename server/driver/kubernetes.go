package driver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/sandbox/kubernetes"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// kubernetesOptions returns the options of the driver.
func kubernetesOptions(c config.Kubernetes, state, guest string, log *slog.Logger) kubernetes.Options {
	var tolerations []kubernetes.Toleration
	for _, t := range c.Tolerations {
		tolerations = append(tolerations, kubernetes.Toleration(t))
	}
	return kubernetes.Options{StateDir: state, GuestPath: guest, Kubeconfig: c.Kubeconfig, Context: c.Context,
		Namespace: c.Namespace,
		Registry:  c.Registry, PullSecrets: c.PullSecrets, RuntimeClass: c.RuntimeClass, NodeSelector: c.NodeSelector,
		Tolerations: tolerations,
		CPURequest:  c.CPURequest, MemoryRequest: c.MemoryRequest, Root: c.Root, AgentSandbox: c.AgentSandbox,
		Logger: log}
}

// sharedInstance returns the names with which the driver kubernetes labels what the servers of a
// cluster share. They are empty without a cluster, and in a directory that is not a server's. The
// instance follows from the key and the bucket, which only the servers of one cluster share.
func sharedInstance(c *config.Config, dir string) (server, instance string, err error) {
	if c.Cluster.Listen == "" {
		return "", "", nil
	}
	if _, err := os.Stat(filepath.Join(dir, "seal.key")); errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	keys, err := state.ReadSealKeys(dir)
	if err != nil {
		return "", "", err
	}
	key := keys.Oldest() // a rotation must not change the labels of Pods that run
	at, err := remote.Parse(c.Blobs)
	if err != nil {
		return "", "", fmt.Errorf("blobs: %w", err)
	}
	mac := hmac.New(sha256.New, key[:])
	fmt.Fprintf(mac, "kubernetes instance\x00%s", at)
	server, err = state.NodeID(dir)
	return server, hex.EncodeToString(mac.Sum(nil)[:6]), err
}
