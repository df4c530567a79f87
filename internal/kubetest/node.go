package kubetest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// pauseImage holds the namespaces of a Pod.
const pauseImage = "127.0.0.1:5000/pause:1"

// startRegistry serves a registry, with the image of the process that holds a Pod's namespaces.
func (c *Cluster) startRegistry() error {
	l, err := net.Listen("tcp", ":5000") // in a network of its own
	if err != nil {
		return err
	}
	quiet, err := os.Create(c.path("registry.log"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(c.path("blobs"), 0o700); err != nil {
		return err
	}
	blobs := registry.NewDiskBlobHandler(c.path("blobs"))
	images := registry.New(registry.WithBlobHandler(blobs), registry.Logger(logger(quiet)))
	go http.Serve(l, images) //nolint:gosec // ends with the process
	return pushPause()
}

// pushPause makes an image of a static busybox that sleeps.
func pushPause() error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return errors.New("busybox is not installed: apt-get install busybox-static")
	}
	raw, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "busybox", Mode: 0o755,
		Size: int64(len(raw))}); err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
	if err != nil {
		return fmt.Errorf("make layer: %w", err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("add layer: %w", err)
	}
	if img, err = mutate.Config(img, v1.Config{Entrypoint: []string{"/busybox", "sleep", "1000000"},
		StopSignal: "SIGKILL"}); err != nil {
		return fmt.Errorf("configure image: %w", err)
	}
	to, err := name.ParseReference(pauseImage)
	if err != nil {
		return fmt.Errorf("name image: %w", err)
	}
	if err := remote.Write(to, img); err != nil {
		return fmt.Errorf("push image: %w", err)
	}
	return nil
}

// containerdConfig: the adjustment of the OOM score is restricted because a machine may not permit
// a lower one than its own.
const containerdConfig = `version = 2
root = "%[1]s/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[2]s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."127.0.0.1:5000"]
    endpoint = ["http://%[3]s:5000"]
`

const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "%[2]s"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "%[1]s/addresses"}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[2]s
tlsCertFile: %[4]s/%[5]s.crt
tlsPrivateKeyFile: %[4]s/%[5]s.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[4]s/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /%[3]s/%[5]s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failSwapOn: false
failCgroupV1: false
evictionHard: {memory.available: 50Mi, nodefs.available: 1Gi, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 2s
podPidsLimit: 1024
podLogsDir: %[1]s/podlogs
volumePluginDir: %[1]s/plugins
resolvConf: ""
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
`

// A node is a machine of the cluster.
type node struct {
	name, address string
	pods          string // the network of its Pods
	registry      string // the registry's address
}

// programs writes the configuration of containerd and the kubelet of a node, and returns how they
// are started.
func (c *Cluster) programs(n node) (containerd, kubelet []string, err error) {
	dir := c.path(n.name)
	if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o755); err != nil {
		return nil, nil, err
	}
	for file, text := range map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, dir, pauseImage, n.registry),
		"cni/10.conflist": fmt.Sprintf(cniConfig, dir, n.pods),
		"kubelet.yaml":    fmt.Sprintf(kubeletConfig, dir, n.address, cgroupName, c.path("pki"), n.name),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return nil, nil, err
		}
	}
	for _, program := range []string{"containerd", "runc", "/usr/lib/cni/ptp"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, nil, fmt.Errorf("%w: apt-get install containerd runc containernetworking-plugins", err)
		}
	}
	return []string{"containerd", "--config=" + filepath.Join(dir, "containerd.toml")},
		[]string{os.Getenv(ProgramEnv), "kubelet", "--config=" + filepath.Join(dir, "kubelet.yaml"), "--kubeconfig=" +
			c.pki.path(n.name+".kubeconfig"),
			"--hostname-override=" + n.name, "--node-ip=" + n.address, "--root-dir=" + filepath.Join(dir, "kubelet"),
			"--cert-dir=" + filepath.Join(dir, "kubelet-pki")}, nil
}

// containerdReady returns an error unless the containerd of these namespaces listens.
func containerdReady() error {
	_, err := os.Stat("/run/containerd/containerd.sock")
	return err
}

// startNode starts containerd and the kubelet of the first node.
func (c *Cluster) startNode() error {
	containerd, kubelet, err := c.programs(node{name: nodeName, address: nodeIP, pods: "10.244.0.0/24",
		registry: "127.0.0.1"})
	if err != nil {
		return err
	}
	if err := c.start("containerd", containerd[0], containerd[1:]...); err != nil {
		return err
	}
	if err := c.await("containerd", containerdReady); err != nil {
		return err
	}
	return c.start("kubelet", kubelet[0], kubelet[1:]...)
}

// nodeReady returns an error unless a node is ready for Pods.
func (c *Cluster) nodeReady(name string) error {
	var node struct {
		Spec   struct{ Taints []struct{ Key string } }
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.Request("GET", "/api/v1/nodes/"+name, nil, &node); err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("it has the taint %s", node.Spec.Taints[0].Key)
	}
	for _, x := range node.Status.Conditions {
		if x.Type == "Ready" && x.Status != "True" {
			return errors.New(x.Message)
		} else if x.Type == "Ready" {
			// Pods need the account that the controller manager creates.
			return c.Request("GET", "/api/v1/namespaces/"+Namespace+"/serviceaccounts/default", nil, nil)
		}
	}
	return errors.New("it has no condition Ready")
}
