package jupyter

import (
	"encoding/json"
	"net"
	"testing"
)

// A kernel that is not known to have Unix sockets listens on ports of the loopback interface,
// which differ.
func TestAddress(t *testing.T) {
	t.Parallel()
	for language, transport := range map[string]string{"python": "ipc", "R": "ipc", "bash": "ipc", "typescript": "tcp",
		"": "tcp"} {
		a, err := NewAddress(t.TempDir(), Spec{Language: language})
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Transport, IP, Key string
			Shell              int `json:"shell_port"`
			IOPub              int `json:"iopub_port"`
			Stdin              int `json:"stdin_port"`
			Control            int `json:"control_port"`
			Heartbeat          int `json:"hb_port"`
		}
		_, content := a.ConnectionFile()
		if err := json.Unmarshal(content, &file); err != nil {
			t.Fatal(err)
		}
		if file.Transport != transport || file.Key == "" || (transport == "tcp") != (file.IP == "127.0.0.1") {
			t.Errorf("%s: the file is %s", language, content)
		}
		ports := map[int]bool{file.Shell: true, file.IOPub: true, file.Stdin: true, file.Control: true,
			file.Heartbeat: true}
		if len(ports) != 5 || transport == "ipc" && file.Control != controlChannel {
			t.Errorf("%s: the ports are %v", language, ports)
		}
		if transport == "tcp" {
			l, err := net.Listen(a.of(controlChannel))
			if err != nil || l.Addr().(*net.TCPAddr).Port != file.Control {
				t.Errorf("listen at the port of the control channel: %v", err)
			}
			if l != nil {
				l.Close()
			}
		}
	}
}
