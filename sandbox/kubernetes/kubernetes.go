// Package kubernetes runs sandboxes as Pods of a Kubernetes cluster, over its API.
//
// The cluster holds all state except a name:
//
//	StateDir/instance               without Options.Server: distinguishes this state directory's objects from others
//	StateDir/instance.directory     identifies the directory: a copy gets another name
//
//	Pod           berth-INSTANCE-…  a sandbox, until it is destroyed
//	Sandbox       berth-INSTANCE-…  with agent-sandbox: what the Pod is made of, and the same name
//	NetworkPolicy berth-INSTANCE    permits these Pods no traffic
//
// The operator's registry holds the images: templates, and the guest program over them.
//
// The guest listens on a socket in the sandbox. Dial makes the API server start a relay beside it,
// whose standard streams are the connection (docs/decisions/0027-kubernetes.md).
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// openTimeout bounds Open, which pushes an image and runs a Pod.
const openTimeout = 5 * time.Minute

// maxVersion bounds the recorded version of the API server, in bytes.
const maxVersion = 64

// Options select the cluster and configure it.
type Options struct {
	// StateDir holds the name under which the cluster stores the sandboxes. Open creates it if
	// it does not exist. Only one process at a time may use a state directory.
	StateDir string

	// GuestPath is the statically linked berth-guest program for the nodes' CPU.
	GuestPath string

	// Kubeconfig and Context select the cluster. By default it is the one whose Pod this process
	// runs in, or else the one of kubectl.
	Kubeconfig, Context string

	// Namespace is where the Pods run. Default: that of the identity.
	Namespace string

	// Registry is a repository, such as registry.example.com/berth, to which the driver pushes
	// the images of sandboxes, and from which the nodes pull them.
	Registry string

	PullSecrets  []string          // names of Secrets with which the nodes pull
	RuntimeClass string            // default: the cluster's own runtime
	NodeSelector map[string]string // labels of the nodes for sandboxes
	Tolerations  []Toleration

	// CPURequest and MemoryRequest are the shares of a sandbox's limits that are reserved for it
	// on its node, 0 to 1.
	CPURequest, MemoryRequest float64

	// Root permits sudo in sandboxes. The Pods then satisfy no Pod Security Standard but
	// "privileged" and "baseline". Without it they satisfy "restricted".
	Root bool

	// AgentSandbox is whether Pods are made by Sandboxes of agent-sandbox: never if it is false;
	// Open fails if it is true and they cannot be. By default they are if the cluster has them, the
	// identity may use them, and their controller works.
	AgentSandbox *bool

	// Server is this server's name among those of a cluster that share Instance, a name of 12
	// hexadecimal digits. They can take over each other's sandboxes. Without it the state
	// directory has a name of its own. Label values limit both.
	Server, Instance string

	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// A Driver runs sandboxes in a cluster. Its methods are safe for concurrent use.
type Driver struct {
	opts     Options
	log      *slog.Logger
	client   *client
	images   *images
	names    naming
	pods     podMaker
	own      string // name of the state directory, if servers share an instance
	features sandbox.Features
	deleted  deletions
	usages   usages
	agents   agents
	version  string // of the API server

	stop context.CancelFunc // ends the watch
	done chan struct{}
}

var _ sandbox.Driver = (*Driver)(nil)

// Open connects to the cluster and prepares it. Its errors are for the operator.
func Open(opts Options) (*Driver, error) {
	d := &Driver{opts: opts, log: cmp.Or(opts.Logger, slog.Default()), done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if err := d.open(ctx); err != nil {
		if d.client != nil {
			d.client.close()
		}
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	ctx, d.stop = context.WithCancel(context.Background())
	go func() {
		defer close(d.done)
		d.watch(ctx)
	}()
	return d, nil
}

func (d *Driver) open(ctx context.Context) (err error) {
	if err := d.openState(); err != nil {
		return err
	}
	if d.images, err = newImages(d.opts.Registry, d.opts.GuestPath, d.log); err != nil {
		return err
	}
	id, err := loadIdentity(d.opts.Kubeconfig, d.opts.Context)
	if err != nil {
		return err
	}
	id.namespace = cmp.Or(d.opts.Namespace, id.namespace)
	if id.namespace == "" {
		return errors.New("no namespace given: name one for the sandboxes in kubernetes.namespace")
	}
	d.client = newClient(id)
	d.agents.client = d.client
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := d.client.do(ctx, http.MethodGet, "/version", nil, "", nil, &version); err != nil {
		return fmt.Errorf("the API server at %s: %w", id.server.Host, err)
	}
	d.version = inWords(version.GitVersion, maxVersion)
	isolation, err := d.isolation(ctx)
	if err != nil {
		return err
	}
	d.features = sandbox.Features{Isolation: isolation, MemoryLimit: true, CPULimit: true, NoRoot: !d.opts.Root,
		OwnKernel: isolation == "microvm", LimitsShown: isolation == "gvisor"}
	if err := d.findAgentSandbox(ctx); err != nil {
		return err
	}
	if err := d.sweepOwn(ctx); err != nil {
		return fmt.Errorf("remove the sandboxes from before the cluster: %w", err)
	}
	if err := d.denyTraffic(ctx); err != nil {
		return fmt.Errorf("write the network policy: %w", err)
	}
	if err := d.checkDenied(ctx); err != nil {
		return err
	}
	if d.agents.creates {
		d.log.Info("kubernetes: agent-sandbox makes the Pods of containers", "api", agentVersion)
	} else {
		d.log.Info("kubernetes: the driver makes the Pods of containers", "why", d.agents.why)
	}
	return nil
}

// openState creates the state directory and reads the name of this driver's objects.
func (d *Driver) openState() (err error) {
	if d.opts.StateDir == "" {
		return errors.New("no state directory given")
	}
	if err := os.MkdirAll(d.opts.StateDir, 0o700); err != nil {
		return err
	}
	if d.opts.StateDir, err = filepath.Abs(d.opts.StateDir); err != nil {
		return err
	}
	d.names.instance, err = sandbox.Instance(d.opts.StateDir, func() error {
		d.log.Warn("kubernetes: the state directory is a copy; its sandboxes are left to the original", "dir",
			d.opts.StateDir)
		return nil
	})
	if d.opts.Server != "" {
		d.own, d.names = d.names.instance, naming{d.opts.Instance, d.opts.Server}
	}
	d.pods = podMaker{d.names, d.opts}
	return err
}

// isolation returns the name of the runtime class's isolation. An identity that may not read
// runtime classes gets it from the class's name.
func (d *Driver) isolation(ctx context.Context) (string, error) {
	if d.opts.RuntimeClass == "" {
		return "kubernetes", nil
	}
	var class runtimeClass
	err := d.client.do(ctx, http.MethodGet, "/apis/node.k8s.io/v1/runtimeclasses/"+url.PathEscape(d.opts.RuntimeClass),
		nil, "", nil, &class)
	if err != nil && !isCode(err, http.StatusForbidden) {
		return "", fmt.Errorf("runtime class %q: %w", d.opts.RuntimeClass, err)
	}
	return isolationOf(class.Handler, d.opts.RuntimeClass), nil
}

func isolationOf(names ...string) string {
	for _, s := range names {
		switch {
		case strings.Contains(s, "runsc"), strings.Contains(s, "gvisor"):
			return "gvisor"
		case strings.Contains(s, "kata"):
			return "microvm"
		}
	}
	return "kubernetes"
}

// Features returns the capabilities of the cluster.
func (d *Driver) Features() sandbox.Features { return d.features }

// A Cluster describes a cluster for the operator.
type Cluster struct {
	Host      string // address of the API server
	Version   string
	Namespace string
	Runtime   string   // runtime class
	Pods      string   // what makes Pods, in words
	Lacks     []string // missing features, in words
}

// Cluster describes the driver's cluster.
func (d *Driver) Cluster() Cluster {
	c := Cluster{Host: d.client.server.Host, Version: d.version, Namespace: d.client.namespace,
		Runtime: cmp.Or(d.opts.RuntimeClass, "the cluster's default")}
	c.Lacks = append(c.Lacks, "containers cannot be paused", "volumes cannot be mounted",
		"policies cannot name addresses",
		"processes are limited by the guest and by the nodes' own limit",
		"a container that writes more than its disk limit is evicted")
	c.Pods = "agent-sandbox makes Pods (" + agentVersion + ")"
	if !d.agents.creates {
		c.Pods = "Berth makes Pods, because " + d.agents.why
	}
	if d.features.Isolation == "kubernetes" {
		c.Lacks = append(c.Lacks,
			"containers share their node's kernel (a runtime class with gVisor or Kata would change that)")
	}
	return c
}

// Close ends the driver's connections. Its sandboxes stay.
func (d *Driver) Close() error {
	d.stop()
	<-d.done
	d.client.close()
	return nil
}

// Clear removes the objects of this state directory that Open added to the cluster. Its sandboxes
// must be gone. The driver cannot be used afterwards. Images stay in the registry, and so does what
// servers share.
func (d *Driver) Clear(ctx context.Context) error {
	if d.opts.Server != "" {
		return d.Close()
	}
	err := d.client.do(ctx, http.MethodDelete, d.policyPath(), nil, "", nil, nil)
	if isMissing(err) {
		err = nil
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("kubernetes: clear: %w", err)
	}
	return nil
}

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	all, err := d.listAll(ctx, d.names.selector(kindSandbox))
	if err != nil {
		return nil, fmt.Errorf("kubernetes: list: %w", err)
	}
	ids := make([]string, 0, len(all))
	for _, m := range all {
		if id := m.Annotations[annotationSandbox]; sandbox.CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
