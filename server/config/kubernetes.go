package config

import (
	"errors"
)

// Kubernetes configures the driver kubernetes.
type Kubernetes struct {
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

	NodeSelector map[string]string `yaml:"node_selector"` // labels of the nodes for containers
	Tolerations  []Toleration      `yaml:"tolerations"`   // of taints of these nodes

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

// Toleration lets Pods run on nodes with a taint, as in the specification of a Pod.
type Toleration struct {
	Key      string `yaml:"key"`
	Operator string `yaml:"operator"` // Exists or Equal
	Value    string `yaml:"value"`
	Effect   string `yaml:"effect"` // NoSchedule, PreferNoSchedule or NoExecute
	Seconds  *int64 `yaml:"seconds"`
}

// checkKubernetes returns an error if the driver kubernetes lacks a setting.
func (c *Config) checkKubernetes() error {
	if c.Driver == "kubernetes" && c.Kubernetes.Registry == "" {
		return errors.New(
			"kubernetes.registry: the driver kubernetes needs a repository to which Berth may push, and from which the nodes pull, such as registry.example.com/berth")
	}
	return nil
}
