package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/sandbox"
)

// Labels and annotations of the driver's objects.
const (
	labelInstance     = "run.berth/instance" // the state directory's name
	labelKind         = "run.berth/kind"     // kindSandbox or kindProbe
	labelServer       = "run.berth/server"   // with Options.Server: the server that has a sandbox
	annotationSandbox = "run.berth/sandbox"  // a Pod's id in Spec: a label's value may not end with _
	annotationEpoch   = "run.berth/epoch"    // with Options.Server: that of the last Claim
	annotationPod     = "run.berth/pod"      // the uid of the Pod of a Sandbox that Start started

	kindSandbox = "sandbox"
	kindProbe   = "probe"
)

// gate keeps a Pod from being scheduled until Start removes it.
const gate = "run.berth/start"

const hostname = "sandbox"

// nobodyID is the uid and gid of Pods without a template.
const nobodyID = 65534

const (
	// guestThreads is the number of threads that the guest creates at its start.
	guestThreads = 24

	// memoryReserve is the part of the memory limit that the guest withholds from commands, so
	// that it ends the largest command before the kernel ends any process.
	memoryReserve = 64 << 20

	// evictAfter is for how many seconds a Pod stays on a node that does not answer.
	evictAfter = 30
)

// rootCapabilities are those of root in a sandbox, with Options.Root. Commands run as another user
// without any until they call sudo.
var rootCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// naming names the objects of a driver.
type naming struct {
	instance string
	server   string // Options.Server
}

// pod returns the name of a sandbox's Pod. Ids that differ only in what a name cannot have get
// different names.
func (n naming) pod(id string) (string, error) {
	if err := sandbox.CheckID(id); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(id))
	words := strings.Trim(strings.ReplaceAll(id, "_", "-"), "-")
	return strings.Join([]string{"berth", n.instance, words[:min(len(words), 40)], hex.EncodeToString(sum[:4])},
		"-"), nil
}

// policy returns the name of the network policy.
func (n naming) policy() string { return "berth-" + n.instance }

// selector returns the label selector of this driver's Pods of a kind.
func (n naming) selector(kind string) string {
	s := n.selectorOfAll(kind)
	if n.server != "" {
		s += "," + labelServer + "=" + n.server
	}
	return s
}

// selectorOfAll returns the label selector of the Pods of all servers that share the instance.
func (n naming) selectorOfAll(kind string) string {
	return labelInstance + "=" + n.instance + "," + labelKind + "=" + kind
}

// has reports whether this server has a Pod or Sandbox.
func (n naming) has(m *meta) bool { return n.server == "" || m.Labels[labelServer] == n.server }

// A podMaker describes the Pods of a driver.
type podMaker struct {
	names naming
	opts  Options
}

// bare returns what all of the driver's Pods have in common: no rights in the cluster, no name
// service, no restart. It satisfies the restricted Pod Security Standard unless root is set.
func (m podMaker) bare(name, kind, image string, who owner) *pod {
	no, yes := false, true
	uid, gid := int64(who.uid), int64(who.gid)
	security := &podSecurity{RunAsUser: &uid, RunAsGroup: &gid, RunAsNonRoot: &yes, Seccomp: &seccomp{"RuntimeDefault"},
		// The guest answers lookups at 127.0.0.1:53, and outside names get addresses of the loopback.
		Sysctls: []sysctl{{"net.ipv4.ip_unprivileged_port_start", "0"}}}
	container := &containerSecurity{AllowPrivilegeEscalation: &no, Capabilities: &capabilities{Drop: []string{"ALL"}}}
	if who.root {
		zero := int64(0)
		security = &podSecurity{RunAsUser: &zero, RunAsGroup: &zero, Seccomp: &seccomp{"RuntimeDefault"}}
		container = &containerSecurity{Capabilities: &capabilities{Drop: []string{"ALL"}, Add: rootCapabilities}}
	}
	grace, soon := int64(1), int64(evictAfter)
	p := &pod{APIVersion: "v1", Kind: "Pod",
		Metadata: meta{Name: name, Labels: map[string]string{labelInstance: m.names.instance, labelKind: kind}},
		Spec: podSpec{
			RuntimeClassName: m.opts.RuntimeClass, NodeSelector: m.opts.NodeSelector,
			Tolerations: append([]Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", Seconds: &soon},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", Seconds: &soon},
			}, m.opts.Tolerations...),
			Hostname: hostname, DNSPolicy: "None",
			DNSConfig: &dnsConfig{Nameservers: []string{"127.0.0.1"},
				Options: []dnsOption{{"timeout", "30"}, {"attempts", "1"}, {"no-aaaa", ""}}},
			RestartPolicy: "Never", GracePeriod: &grace, ServiceAccountToken: &no, ServiceLinks: &no,
			SecurityContext: security,
			Containers: []podContainer{{Name: containerName, Image: image, WorkingDir: "/",
				SecurityContext: container, MessagePolicy: "FallbackToLogsOnError"}},
		},
	}
	if m.opts.Server != "" {
		p.Metadata.Labels[labelServer] = m.opts.Server
	}
	for _, s := range m.opts.PullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, named{s})
	}
	return p
}

// sandbox returns the Pod of a sandbox. It is not scheduled before Start.
func (m podMaker) sandbox(name, image, home string, who owner, spec sandbox.Spec) *pod {
	l := spec.Limits.WithDefaults()
	p := m.bare(name, kindSandbox, image, who)
	p.Metadata.Annotations = map[string]string{annotationSandbox: spec.ID}
	p.Spec.SchedulingGates = []named{{gate}}
	c := &p.Spec.Containers[0]
	c.Command = []string{guestPath}
	c.Env = guestEnv(spec.Env, l, m.opts.Server != "")
	if m.opts.Server != "" {
		p.Metadata.Annotations[annotationEpoch] = "0"
	}
	if !who.root { // which would find it by itself
		// Nodes' own filters are as old as the nodes: containerd 1.6's allows io_uring and AF_VSOCK.
		// A process without new privileges may add one.
		// Of several with one name, the last counts.
		c.Env = append(slices.Insert(c.Env, 0, variable{"HOME", home}), variable{"BERTH_FILTER", "1"})
	}
	memory := strconv.FormatInt(l.Memory, 10)
	cpu := strconv.FormatInt(int64(math.Ceil(l.CPU*1000)), 10) + "m"
	c.Resources = resources{
		Limits: map[string]string{"memory": memory, "cpu": cpu, "ephemeral-storage": strconv.FormatInt(l.Disk, 10)},
		Requests: map[string]string{
			"memory":            strconv.FormatInt(int64(float64(l.Memory)*m.opts.MemoryRequest), 10),
			"cpu":               strconv.FormatInt(int64(math.Ceil(l.CPU*1000*m.opts.CPURequest)), 10) + "m",
			"ephemeral-storage": "0",
		},
	}
	for _, v := range []struct{ name, path, size string }{
		{"guest", guestRunDir, "1Mi"},
		{"shm", "/dev/shm", strconv.FormatInt(l.Memory/2, 10)},
	} {
		p.Spec.Volumes = append(p.Spec.Volumes,
			volume{Name: v.name, EmptyDir: &emptyDir{Medium: "Memory", SizeLimit: v.size}})
		c.VolumeMounts = append(c.VolumeMounts, volumeMount{v.name, v.path})
	}
	return p
}

// guestEnv returns the guest's environment: the Spec's, overridden by a few variables of the
// driver. epochs means that connections have an epoch.
func guestEnv(spec []string, l sandbox.Limits, epochs bool) []variable {
	own := map[string]string{
		"BERTH_GUEST_SOCKET": guestSocket,
		"BERTH_GUEST_LOG":    guestLog,
		"BERTH_STATE_DIR":    stateDir,
		"BERTH_MEMORY_LIMIT": strconv.FormatInt(max(l.Memory-memoryReserve, l.Memory/2), 10),
		"BERTH_THREADS":      strconv.Itoa(guestThreads),
		"BERTH_PIDS_LIMIT":   strconv.Itoa(l.PIDs),
		"BERTH_EPOCHS":       "0",
		"BERTH_WATCH":        "0", // Pods of a node share the few watches of its kernel
	}
	if epochs {
		own["BERTH_EPOCHS"] = "1"
	}
	var env []variable
	for _, kv := range spec {
		name, value, _ := strings.Cut(kv, "=")
		if _, ours := own[name]; ours {
			continue
		}
		// Kubernetes would replace $(NAME).
		value = strings.ReplaceAll(value, "$", "$$")
		if i := slices.IndexFunc(env, func(v variable) bool { return v.Name == name }); i >= 0 {
			env[i].Value = value
			continue
		}
		env = append(env, variable{name, value})
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		env = append(env, variable{name, own[name]})
	}
	return env
}

// checkUser returns an error unless commands of a template may run with the driver's settings.
func checkUser(who owner, ref string) error {
	if who.uid == 0 && !who.root {
		return fmt.Errorf("template %s: its commands run as root, which needs kubernetes.root", ref)
	}
	return nil
}
