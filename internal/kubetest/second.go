package kubetest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// AddNode adds a node to the cluster, in network, mount and process namespaces of its own, and
// waits until it is ready for Pods. The returned function ends all of its processes at the same time, as a
// loss of power does; the cluster learns of it by the missing heartbeats. The node is removed
// from the cluster when the test ends.
func (c *Cluster) AddNode(tb testing.TB) (lose func()) {
	tb.Helper()
	lose, err := c.addNode(tb)
	if err != nil {
		tb.Fatalf("add a node: %v\n%s", err, c.Logs(secondName))
	}
	return lose
}

func (c *Cluster) addNode(tb testing.TB) (lose func(), err error) {
	// The disk of an earlier node went with it. Its kubelet would clean up the Pods on it for more than
	// a minute before it registers the node.
	if err := os.RemoveAll(c.path(secondName)); err != nil {
		return nil, err
	}
	containerd, kubelet, err := c.programs(node{name: secondName, address: secondIP, pods: "10.244.1.0/24",
		registry: nodeIP})
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.path(secondName+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+roleNode)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	p := &process{name: secondName, cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	lose = func() {
		_ = cmd.Process.Kill()
		<-p.done
	}
	tb.Cleanup(func() {
		lose()
		if err := c.Request(http.MethodDelete, "/api/v1/nodes/"+secondName, nil, nil); err != nil &&
			!strings.Contains(err.Error(), "404") {
			tb.Errorf("remove the node: %v", err)
		}
	})
	for _, args := range [][]string{
		{"ip", "link", "add", secondName, "type", "veth", "peer", "name", "node", "netns", fmt.Sprint(cmd.Process.Pid)},
		{"ip", "link", "set", secondName, "up"},
		{"ip", "route", "add", secondIP + "/32", "dev", secondName, "src", nodeIP},
	} {
		if err := call(args...); err != nil {
			return nil, err
		}
	}
	if err := json.NewEncoder(orders).Encode([][]string{containerd, kubelet}); err != nil {
		return nil, fmt.Errorf("start the node's programs: %w", err)
	}
	for end := time.Now().Add(startTimeout); ; time.Sleep(200 * time.Millisecond) {
		select {
		case <-p.done:
			return nil, fmt.Errorf("the node ended: %v", cmd.ProcessState)
		default:
		}
		if err := c.nodeReady(secondName); err == nil {
			return lose, nil
		} else if time.Now().After(end) {
			return nil, fmt.Errorf("the node is not ready: %w", err)
		}
	}
}

// runNode is the first process of another node: it makes the node's mounts and interfaces, runs
// the programs that it reads from its standard input, and reaps orphans.
func runNode() (code int, err error) {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n') // the interface is there then
	if err != nil {
		return 1, fmt.Errorf("read the programs: %w", err)
	}
	var programs [][]string
	if err := json.Unmarshal(line, &programs); err != nil {
		return 1, fmt.Errorf("decode the programs: %w", err)
	}
	if err := prepareMounts(secondName); err != nil {
		return 1, err
	}
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "add", secondIP + "/24", "dev", "node"},
		{"ip", "link", "set", "node", "up"},
		{"ip", "route", "add", "default", "via", nodeIP},
		{"sysctl", "-q", "-w", "net.ipv4.ip_forward=1"},
	} {
		if err := call(args...); err != nil {
			return 1, err
		}
	}
	if err := Isolate(true); err != nil {
		return 1, err
	}
	var pids []int
	for i, args := range programs {
		for end := time.Now().Add(startTimeout); i > 0 && containerdReady() != nil; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				return 1, errors.New("containerd does not listen")
			}
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return 1, fmt.Errorf("start %s: %w", args[0], err)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	return reap(pids...)
}
