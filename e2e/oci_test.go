package e2e

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/internal/longtest"
)

// TestDockerImage runs the image of make image in a Docker Engine, as compose.yaml and as
// docs/install.md say: it pulls a template, serves, answers a response and runs a command in a
// container, and does so again after a restart.
func TestDockerImage(t *testing.T) {
	longtest.Skip(t)
	docker := dockerCLI(t)
	loadImage(t, docker, "berth:e2e")
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/tiny:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	for what, flags := range map[string][]string{
		"privileged": {"--privileged"},
		"capabilities": {"--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cap-add=SYS_PTRACE",
			"--security-opt=seccomp=unconfined", "--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup"},
	} {
		t.Run(what, func(t *testing.T) {
			// The engine of the test has no network of its own.
			flags := append(flags, "--network=host", "--volume=state-"+what+":/var/lib/berth")
			run := func(args ...string) string {
				t.Helper()
				out, err := docker(append(append([]string{"run"}, flags...), args...)...)
				if err != nil {
					t.Fatalf("docker run %q: %v: %s", args, err, out)
				}
				return strings.TrimSpace(out)
			}
			if out, err := docker(append(append([]string{"run", "--rm"}, flags...), "berth:e2e",
				"version")...); err != nil && strings.Contains(out, "unable to apply caps") {
				t.Skipf("skipped: this machine lacks a capability that the engine gives to privileged containers: %s",
					out)
			}
			run("--rm", "berth:e2e", "image", "pull", ref.Name(), "--insecure", "--name", "base")
			if out := run("--rm", "berth:e2e", "doctor"); !strings.HasPrefix(out,
				"This machine is ready: containers start.") || !strings.Contains(out, "mkfs.ext4 is not installed") {
				t.Errorf("berth doctor: %s", out)
			}
			s := &server{t: t, addr: freeport.Addr(t), log: &logBuffer{}}
			s.url = "http://" + s.addr
			id := run("--detach", "berth:e2e", "serve", "--listen", s.addr)
			t.Cleanup(func() {
				if t.Failed() {
					out, _ := docker("logs", id)
					t.Logf("the server logged:\n%s", out)
				}
				if out, err := docker("rm", "--force", id); err != nil {
					t.Errorf("docker rm: %v: %s", err, out)
				}
			})
			for _, when := range []string{"at first", "after a restart"} {
				s.waitUntil("the server answers "+when, s.healthy)
				if out, errs, err := s.berth("run", "--model", "scripted", fence("greet; echo $((6*7))")); err != nil ||
					!strings.Contains(out+errs, "hello from an image") || !strings.Contains(out+errs, "42") {
					t.Errorf("a response %s: got %v: %s%s", when, err, out, errs)
				}
				box := s.newContainer()
				if out, errs, err := s.berth("exec", box, "--", "/bin/sh", "-c", "greet; id -u"); err != nil ||
					out != "hello from an image\n1000\n" {
					t.Errorf("a command %s: got %q, %v: %s", when, out, err, errs)
				}
				if out, err := docker("restart", id); err != nil {
					t.Fatalf("docker restart: %v: %s", err, out)
				}
			}
			s.waitUntil("the server answers before its end", s.healthy)
			if out, err := docker("stop", "--time=60", id); err != nil {
				t.Errorf("docker stop: %v: %s", err, out)
			}
			if out, err := docker("inspect", "--format={{.State.ExitCode}}", id); err != nil ||
				strings.TrimSpace(out) != "0" {
				t.Errorf("the exit code after docker stop: got %s, %v", out, err)
			}
		})
	}
}

// loadImage builds the image of Berth and gives it to an engine.
func loadImage(t *testing.T, docker func(args ...string) (string, error), tag string, flags ...string) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "berth.tar")
	make := exec.Command("go", append(append([]string{"run", "./packaging/oci", "-tag", tag, "-o", archive}, flags...),
		runtime.GOARCH+"="+binary(t))...)
	make.Dir = ".."
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("packaging/oci: %v: %s", err, out)
	}
	if out, err := docker("load", "-i", archive); err != nil {
		t.Fatalf("docker load: %v: %s", err, out)
	}
}

// An image that has a template needs one command to serve and one for a key.
func TestDockerImageWithTemplate(t *testing.T) {
	docker := dockerCLI(t)
	base := filepath.Join(t.TempDir(), "base.tar")
	tag, err := name.NewTag("base:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(base, tag, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	loadImage(t, docker, "berth:template", "-template", runtime.GOARCH+"="+base)
	s := &server{t: t, addr: freeport.Addr(t), log: &logBuffer{}}
	s.url = "http://" + s.addr
	// The engine of the test has no network of its own.
	id, err := docker("run", "--detach", "--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cap-add=SYS_PTRACE",
		"--security-opt=seccomp=unconfined", "--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup",
		"--network=host", "berth:template", "serve", "--listen", s.addr, "--await-key")
	if err != nil {
		t.Fatalf("docker run: %v: %s", err, id)
	}
	id = strings.TrimSpace(id)
	defer func() { // before the end of the context of docker
		if t.Failed() {
			out, _ := docker("logs", id)
			t.Logf("the server logged:\n%s", out)
		}
		if out, err := docker("rm", "--force", "--volumes", id); err != nil {
			t.Errorf("docker rm: %v: %s", err, out)
		}
	}()
	s.waitUntil("the server answers", s.healthy)
	if _, errs, err := s.berth("create"); err == nil || !strings.Contains(errs, "key") {
		t.Errorf("a container without a key: got %v: %s", err, errs)
	}
	secret, err := docker("exec", id, "berth", "key", "create")
	if err != nil {
		t.Fatalf("key create: %v: %s", err, secret)
	}
	s.key = strings.TrimSpace(secret)
	var box string
	s.waitUntil("the template is loaded", func() bool {
		var err error
		box, _, err = s.berth("create")
		return err == nil
	})
	if out, errs, err := s.berth("exec", strings.TrimSpace(box), "--", "/bin/sh", "-c", "greet"); err != nil ||
		out != "hello from an image\n" {
		t.Errorf("a command: got %q, %v: %s", out, err, errs)
	}
}

// dockerCLI starts an engine and returns a function that runs docker with it. It returns what docker
// prints.
func dockerCLI(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	host := dockertest.Start(t)
	program := "/usr/bin/docker" // Debian's, which fits the engine
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("docker"); err != nil {
			t.Skip("skipped: docker is not installed")
		}
	}
	config := t.TempDir()
	return func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+host, "DOCKER_CONFIG="+config)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// TestCompose checks that compose.yaml fits the image: it serves where the port leads to, and the
// state is in the volume. With docker-compose of Debian, that program checks the file as well.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image      string
			Privileged bool
			Ports      []string
			Volumes    []string
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	service, ok := file.Services["berth"]
	if _, named := file.Volumes["state"]; !ok || !named || service.Image != "berth:latest" || !service.Privileged ||
		strings.Join(service.Ports, " ") != "127.0.0.1:8080:8080" || strings.Join(service.Volumes,
		" ") != "state:/var/lib/berth" {
		t.Errorf("compose.yaml: got %+v", file)
	}
	checkCompose(t, "../compose.yaml")
}

// checkCompose lets docker-compose check a file, or docker compose.
func checkCompose(t *testing.T, file string) {
	t.Helper()
	command := []string{"docker-compose"}
	if _, err := exec.LookPath(command[0]); err != nil {
		command = []string{"docker", "compose"}
		if exec.Command("docker", "compose", "version").Run() != nil {
			t.Skip("docker-compose is not installed; scripts/setup test installs it for make test-long")
		}
	}
	cmd := exec.Command(command[0], append(command[1:], "--file", file, "config", "--quiet")...)
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL=", "OPENAI_API_KEY=", "POSTGRES_PASSWORD=p", "S3_SECRET_KEY=s")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%q config %s: %v: %s", command, file, err, out)
	}
}

// TestComposeCluster checks that the servers of compose.cluster.yaml are two members of one cluster:
// their configuration is valid with their environment, they share what they must, and their state
// and addresses are their own.
func TestComposeCluster(t *testing.T) {
	text, err := os.ReadFile("../compose.cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type service struct {
		Image       string
		Command     []string
		Volumes     []string
		Environment map[string]string
	}
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"berth1", "berth2"} {
		s := file.Services[name]
		state := "state" + strconv.Itoa(i+1)
		if _, named := file.Volumes[state]; !named || s.Image != "berth:latest" || strings.Join(s.Command,
			" ") != "serve --config /etc/berth/berth.yaml" ||
			!slices.Equal(s.Volumes, []string{state + ":/var/lib/berth", "./seal.key:/var/lib/berth/seal.key:ro",
				"./packaging/compose-berth.yaml:/etc/berth/berth.yaml:ro"}) ||
			s.Environment["BERTH_CLUSTER_ADDRESS"] != name+":7443" {
			t.Errorf("%s: got %+v", name, s)
		}
		cmd := exec.Command(binary(t), "config", "show", "../packaging/compose-berth.yaml")
		for k, v := range s.Environment {
			cmd.Env = append(cmd.Env, k+"="+os.Expand(v, func(string) string { return "x" }))
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: berth config show: %v: %s", name, err, out)
		}
		for _, want := range []string{`address: "` + name + `:7443"`, "@postgres/berth", "s3://berth?"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: the configuration lacks %q:\n%s", name, want, out)
			}
		}
	}
	if s := file.Services["s3"]; !slices.Equal(s.Volumes, file.Services["bucket"].Volumes) {
		t.Errorf("the bucket is not where the S3 server looks: %+v", file.Services["bucket"])
	}
	checkCompose(t, "../compose.cluster.yaml")
}
