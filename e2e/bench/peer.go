package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errNotInstalled means that scripts/setup has not installed a peer, or what a subject reads.
var errNotInstalled = errors.New("not installed")

// peerStartTime is how long a peer may take to start; some import for minutes on a busy machine.
const peerStartTime = 10 * time.Minute

// A peerKind is another server that speaks Responses, as installed from PyPI.
type peerKind struct {
	name, version string
	lock          string // the name of its environment: e2e/python/LOCK.txt pins it
	model         string // its name of the model "m"
	config        string // of %[1]s, the model's URL, and %[2]s, the directory of its state
	command       func(bin, dir, model, port string) []string
	env           []string // beside PATH and HOME
	// ready succeeds when the peer answers; nil is a chat.
	ready func(*peer, context.Context, *http.Client) error
}

// peerKinds are started as their documentation does: OGX and LiteLLM as one process, agentic-api
// with a thread for each processor. With more processes they check that each answers within
// seconds, and on a busy machine they end it before it has started.
var peerKinds = []peerKind{
	{
		name: "OGX", version: "1.5.0", lock: "ogx", model: "openai/m", config: ogxConfig,
		command: func(bin, dir, _, port string) []string {
			return []string{filepath.Join(bin, "ogx"), "run", filepath.Join(dir, "config.yaml"), "--port", port,
				"--insecure"}
		},
		env: []string{"OGX_HOST=127.0.0.1"},
	},
	{
		name: "LiteLLM", version: "1.102.4", lock: "litellm", model: "m",
		config: "model_list:\n  - {model_name: m, litellm_params: {model: openai/m, api_base: '%[1]s/v1', api_key: none}}\n",
		command: func(bin, dir, _, port string) []string {
			return []string{filepath.Join(bin, "litellm"), "--config", filepath.Join(dir, "config.yaml"), "--host",
				"127.0.0.1", "--port", port}
		},
		env: []string{"LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_TELEMETRY=False"},
	},
	{
		name: "agentic-api", version: "0.9.0", lock: "agentic", model: "m",
		command: func(bin, dir, model, port string) []string {
			return []string{filepath.Join(bin, "agentic-server"), "--llm-api-base", model, "--gateway-host",
				"127.0.0.1", "--gateway-port", port, "--db-url", "sqlite://" + filepath.Join(dir, "agentic.db")}
		},
		env: []string{"AGENTIC_CODE_INTERPRETER_ENABLED=true"},
	},
}

const ogxConfig = `version: 2
distro_name: bench
apis: [files, inference, responses, tool_runtime, vector_io]
providers:
  inference:
  - {provider_id: openai, provider_type: "remote::openai", config: {api_key: none, base_url: "%[1]s/v1", allowed_models: [m]}}
  files:
  - {provider_id: localfs, provider_type: "inline::localfs", config: {storage_dir: "%[2]s/files", metadata_store: {table_name: files_metadata, backend: sql_default}}}
  vector_io: []
  tool_runtime: []
  responses:
  - {provider_id: builtin, provider_type: "inline::builtin", config: {persistence: {responses: {table_name: responses, backend: sql_default}}}}
storage:
  backends:
    kv_default: {type: kv_sqlite, db_path: "%[2]s/kv.db"}
    sql_default: {type: sql_sqlite, db_path: "%[2]s/sql.db"}
  stores:
    metadata: {namespace: registry, backend: kv_default}
    inference: {table_name: inference_store, backend: sql_default}
    conversations: {table_name: openai_conversations, backend: sql_default}
    prompts: {table_name: prompts, backend: sql_default}
    connectors: {table_name: connectors, backend: sql_default}
registered_resources: {models: [], vector_stores: []}
server: {host: 127.0.0.1}
`

// A peer is a server that is driven.
type peer struct {
	name, version, url, model string
	pids                      []int // of Berth, whose processes are known
	code                      int   // 1 + the index of the tool that runs code; 0 if not known
	cmd                       *exec.Cmd
	started                   series
}

func (p *peer) String() string { return strings.TrimSpace(p.name + " " + p.version) }

// startPeer starts a peer before a model and returns when it answers.
func (b *bench) startPeer(ctx context.Context, kind peerKind, model string) (*peer, error) {
	env, err := pythonEnv(kind.lock)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.state, "peer-")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), fmt.Appendf(nil, kind.config, model, dir),
		0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	addrs, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addrs[0], ":")
	bin := filepath.Join(env, "bin")
	command := kind.command(bin, dir, model, port)
	p := &peer{name: kind.name, version: kind.version, url: "http://" + addrs[0], model: kind.model}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	// Nothing of this program's environment, which may have keys.
	p.cmd.Env = append([]string{"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "AGENTIC_API_HOME=" +
		dir}, kind.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "pid"), fmt.Append(nil, p.cmd.Process.Pid), 0o600),
		p.await(ctx, kind.ready)); err != nil {
		p.stop()
		raw, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w: it logged %s", err, raw[max(0, len(raw)-1000):])
	}
	p.started.took(time.Since(began), nil)
	return p, nil
}

// await returns when the peer is ready.
func (p *peer) await(ctx context.Context, ready func(*peer, context.Context, *http.Client) error) error {
	if ready == nil {
		ready = (*peer).chat
	}
	ctx, cancel := context.WithTimeout(ctx, peerStartTime)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(p, ctx, http.DefaultClient)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		}
		if syscall.Kill(-p.cmd.Process.Pid, 0) != nil {
			return errors.New("it has ended")
		}
	}
}

// stop ends all processes of the peer.
func (p *peer) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// endPeer ends the peer that a killed run has left in a state directory, if there is one.
func endPeer(state string) error {
	raw, err := os.ReadFile(filepath.Join(state, "pid"))
	if err != nil {
		return nil // it had none
	}
	pid, err := strconv.Atoi(string(raw))
	if err != nil {
		return nil
	}
	for _, of := range groupOf(pid) {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", of))
		if err == nil && strings.Contains(string(command), state+"/") {
			return syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	return nil
}

// processes returns the processes of the peer: those of its process group.
func (p *peer) processes() []int {
	if p.cmd == nil {
		return p.pids
	}
	return groupOf(p.cmd.Process.Pid)
}

// memory returns the memory of the peer in MB. Pages that processes share are counted once.
func (p *peer) memory() float64 {
	total := 0.0
	for _, pid := range p.processes() {
		total += pss(pid)
	}
	return total
}

// pythonEnv returns the environment that scripts/setup has made for a lock file.
func pythonEnv(lock string) (string, error) {
	raw, err := os.ReadFile(filepath.Join("e2e", "python", lock+".txt"))
	if err != nil {
		return "", fmt.Errorf("read the pinned versions: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	dir := filepath.Join(cache, "berth-test", "python", lock+"-"+hex.EncodeToString(sum[:])[:12])
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		return "", errNotInstalled
	}
	return dir, nil
}
