package kubetest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of the cluster, in a network of its own.
const (
	nodeName = "node1"
	nodeIP   = "10.99.0.1"

	secondName = "node2"
	secondIP   = "10.99.0.2"

	podNet  = "10.244.0.0/16"
	server  = "https://" + nodeIP + ":6443"
	etcdURL = "http://127.0.0.1:2379"

	// Registry is a repository from which the node pulls.
	Registry = "127.0.0.1:5000/berth"

	// Namespace and Agents enforce the restricted Pod Security Standard, Baseline the baseline one.
	// Only in Agents the user may use agent-sandbox.
	Namespace = "sandboxes"
	Agents    = "agents"
	Baseline  = "baseline"
)

// A Cluster is a running cluster.
type Cluster struct {
	// Kubeconfig is that of a user with the permissions of docs/kubernetes.md in Namespace, Agents
	// and Baseline, and none elsewhere.
	Kubeconfig string

	dir   string
	pki   *authority
	admin *http.Client

	mu        sync.Mutex
	processes []*process
}

// A process is a component of the cluster.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// issue creates the certificates of all components.
func (c *Cluster) issue() (err error) {
	if c.pki, err = newAuthority(c.path("pki")); err != nil {
		return err
	}
	for _, i := range []struct {
		name, user string
		groups     []string
		addresses  []string
	}{
		{"server", "kube-apiserver", nil, []string{nodeIP, "127.0.0.1", "10.96.0.1", "kubernetes.default.svc"}},
		{"admin", "admin", []string{"system:masters"}, nil},
		{"manager", "system:kube-controller-manager", nil, nil},
		{"scheduler", "system:kube-scheduler", nil, nil},
		{nodeName, "system:node:" + nodeName, []string{"system:nodes"}, []string{nodeIP, nodeName}},
		{secondName, "system:node:" + secondName, []string{"system:nodes"}, []string{secondIP, secondName}},
		{agentSandbox, agentSandbox, nil, nil},
		{"berth", "berth", nil, nil},
	} {
		if err := c.pki.issue(i.name, i.user, i.groups, i.addresses...); err != nil {
			return err
		}
		if c.Kubeconfig, err = c.pki.kubeconfig(i.name); err != nil { // the last one is berth's
			return err
		}
	}
	c.admin, err = c.pki.client("admin")
	return err
}

// startServer starts etcd and the API server.
func (c *Cluster) startServer() error {
	pki := c.pki.path
	for _, args := range [][]string{
		{"etcd", "--data-dir=" + c.path("etcd"), "--listen-client-urls=" + etcdURL, "--advertise-client-urls=" +
			etcdURL,
			"--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync"},
		{"kube-apiserver", "--etcd-servers=" + etcdURL, "--advertise-address=" + nodeIP, "--secure-port=6443",
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--client-ca-file=" +
				pki("ca.crt"),
			"--tls-cert-file=" + pki("server.crt"), "--tls-private-key-file=" + pki("server.key"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" +
				pki("server.key"),
			"--service-account-signing-key-file=" + pki("server.key"), "--kubelet-client-certificate=" +
				pki("admin.crt"),
			"--kubelet-client-key=" + pki("admin.key"), "--kubelet-certificate-authority=" + pki("ca.crt"),
			"--kubelet-preferred-address-types=InternalIP"},
	} {
		if err := c.start(args[0], os.Getenv(ProgramEnv), args...); err != nil {
			return err
		}
	}
	return nil
}

// startControllers starts what needs the API server's roles.
func (c *Cluster) startControllers() error {
	pki := c.pki.path
	for _, args := range [][]string{
		{"kube-controller-manager", "--kubeconfig=" + pki("manager.kubeconfig"), "--leader-elect=false",
			"--use-service-account-credentials", "--root-ca-file=" + pki("ca.crt"),
			"--service-account-private-key-file=" + pki("server.key"), "--node-monitor-period=1s",
			"--node-monitor-grace-period=10s",
			"--bind-address=127.0.0.1"},
		{"kube-scheduler", "--kubeconfig=" + pki("scheduler.kubeconfig"), "--leader-elect=false",
			"--bind-address=127.0.0.1"},
	} {
		if err := c.start(args[0], os.Getenv(ProgramEnv), args...); err != nil {
			return err
		}
	}
	return nil
}

// start starts a component, whose output goes to its log.
func (c *Cluster) start(name, program string, args ...string) error {
	log, err := os.OpenFile(c.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{name: name, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = c.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, p)
	return nil
}

// Signal sends a signal to a component, such as "kubelet".
func (c *Cluster) Signal(name string, sig os.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p.name == name {
			return p.cmd.Process.Signal(sig)
		}
	}
	return fmt.Errorf("no component %q", name)
}

// await waits until ready returns no error. It fails if a component ends.
func (c *Cluster) await(what string, ready func() error) error {
	for end := time.Now().Add(startTimeout); ; time.Sleep(200 * time.Millisecond) {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is not ready: %w", what, err)
		}
		c.mu.Lock()
		all := c.processes
		c.mu.Unlock()
		for _, p := range all {
			select {
			case <-p.done:
				return fmt.Errorf("%s ended: %v", p.name, p.cmd.ProcessState)
			default:
			}
		}
	}
}

// logs returns the ends of the components' logs.
func (c *Cluster) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(c.path("*.log"))
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(f), raw[max(0, len(raw)-1500):])
	}
	return b.String()
}

// Logs returns the end of a component's log.
func (c *Cluster) Logs(name string) string {
	raw, _ := os.ReadFile(c.path(name + ".log"))
	return string(raw[max(0, len(raw)-20_000):])
}

// stop ends the components and removes their files. The first process of the namespaces ends what
// they leave.
func (c *Cluster) stop() error {
	if c.dir == "" { // another process's
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		_ = p.cmd.Process.Signal(unix.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	if os.Getenv("BERTH_KUBETEST_KEEP") != "" {
		fmt.Fprintln(os.Stderr, "kubetest: logs are in", c.dir)
		return nil
	}
	killAll()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		unmountBelow(c.dir)
		err := os.RemoveAll(c.dir)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// killAll kills all other processes of this process namespace but its first, which cannot be
// killed from inside.
func killAll() {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if n, _ := fmt.Sscan(e.Name(), &pid); n == 1 && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// unmountBelow removes the mounts in a directory.
func unmountBelow(dir string) {
	raw, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			_ = unix.Unmount(f[4], unix.MNT_DETACH)
		}
	}
}
