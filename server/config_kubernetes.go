package server

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
)

// KubernetesConfig configures the driver kubernetes.
type KubernetesConfig struct {
	// Kubeconfig is a file with the API server's address and credentials. Default: the service
	// account of the Pod that Berth runs in; else KUBECONFIG, or ~/.kube/config.
	Kubeconfig string `yaml:"kubeconfig"`
	Context    string `yaml:"context"` // in that file. Default: its current one

	// Namespace is where the Pods of containers run. Default: that of the service account or
	// context.
	Namespace string `yaml:"namespace"`

	// Registry is a repository, such as registry.example.com/berth, to which Berth pushes
	// templates, and from which the nodes pull them.
	Registry string `yaml:"registry"`

	// PullSecrets are names of Secrets in Namespace with which the nodes pull.
	PullSecrets []string `yaml:"pull_secrets"`

	// RuntimeClass is the RuntimeClass of Pods, such as gvisor or kata. Default: the cluster's.
	RuntimeClass string `yaml:"runtime_class"`

	NodeSelector map[string]string       `yaml:"node_selector"` // labels of the nodes for containers
	Tolerations  []kubernetes.Toleration `yaml:"tolerations"`   // of taints of these nodes

	// CPURequest and MemoryRequest are the shares of a container's limits that are reserved on
	// its node. Default: 0.1 and 1.
	CPURequest    float64 `yaml:"cpu_request"`
	MemoryRequest float64 `yaml:"memory_request"`

	// Root permits sudo in containers. Their namespace must then permit the Pod Security
	// Standard "baseline"; else "restricted" suffices.
	Root bool `yaml:"root"`

	// AgentSandbox is whether agent-sandbox makes the Pods of containers. By default it does where the
	// cluster has it and Berth may use it; true makes it a condition of the start.
	AgentSandbox *bool `yaml:"agent_sandbox"`
}

// options returns the options of the driver.
func (c KubernetesConfig) options(state, guest string, log *slog.Logger) kubernetes.Options {
	return kubernetes.Options{StateDir: state, GuestPath: guest, Kubeconfig: c.Kubeconfig, Context: c.Context,
		Namespace: c.Namespace,
		Registry:  c.Registry, PullSecrets: c.PullSecrets, RuntimeClass: c.RuntimeClass, NodeSelector: c.NodeSelector,
		Tolerations: c.Tolerations,
		CPURequest:  c.CPURequest, MemoryRequest: c.MemoryRequest, Root: c.Root, AgentSandbox: c.AgentSandbox,
		Logger: log}
}

// sharedInstance returns the names with which the driver kubernetes labels what the servers of a
// cluster share. They are empty without a cluster, and in a directory that is not a server's. The
// instance follows from the key and the bucket, which only the servers of one cluster share.
func (c *Config) sharedInstance(state string) (server, instance string, err error) {
	if c.Cluster.Listen == "" {
		return "", "", nil
	}
	if _, err := os.Stat(filepath.Join(state, "seal.key")); errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	key, err := sealKey(state)
	if err != nil {
		return "", "", err
	}
	at, err := remote.Parse(c.Blobs)
	if err != nil {
		return "", "", fmt.Errorf("blobs: %w", err)
	}
	mac := hmac.New(sha256.New, key[:])
	fmt.Fprintf(mac, "kubernetes instance\x00%s", at)
	server, err = nodeID(state)
	return server, hex.EncodeToString(mac.Sum(nil)[:6]), err
}

// checkKubernetes returns an error if the driver kubernetes lacks a setting.
func (c *Config) checkKubernetes() error {
	if c.Driver == "kubernetes" && c.Kubernetes.Registry == "" {
		return errors.New(
			"kubernetes.registry: the driver kubernetes needs a repository to which Berth may push, and from which the nodes pull, such as registry.example.com/berth")
	}
	return nil
}
