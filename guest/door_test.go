package guest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	pb "github.com/berth-run/berth/guest/guestpb/process"
	"github.com/berth-run/berth/guest/guestpb/process/processconnect"
)

// heard is a listener that records its calls.
type heard struct {
	text  strings.Builder
	ended int
}

func (h *heard) Output(stderr bool, data []byte) {
	if len(data) > 0 {
		fmt.Fprintf(&h.text, "%v:%s;", stderr, data)
	}
}
func (h *heard) End(code int) { fmt.Fprintf(&h.text, "end %d", code); h.ended++ }
func (h *heard) Detach()      { h.text.WriteString("left"); h.ended++ }

func message(flags byte, m proto.Message) string {
	payload, _ := proto.Marshal(m)
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload)))) + string(payload)
}

func stdoutOf(s string) proto.Message {
	return &pb.StartResponse{Event: &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(s)}}}}}
}

func endOf(code int32) proto.Message {
	return &pb.StartResponse{Event: &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: code}}}}
}

// refusal is the end of an answer with an error.
func refusal(text string) string {
	payload, _ := json.Marshal(map[string]any{"error": map[string]string{"code": "invalid_argument", "message": text}})
	return string(binary.BigEndian.AppendUint32([]byte{flagEnd}, uint32(len(payload)))) + string(payload)
}

func TestTap(t *testing.T) {
	for in, want := range map[string]string{
		message(0, stdoutOf("a")) + message(0, stdoutOf("b")) + message(0, endOf(3)): "false:a;false:b;end 3",
		message(0, endOf(0)) + message(0, stdoutOf("late")):                          "end 0",
		message(0, stdoutOf("a")):                                                    "false:a;left",
		message(0, stdoutOf("a")) + message(2, nil):                                  "false:a;left",
		refusal(`exec: "nope": executable file not found in $PATH`):                  "true:exec: \"nope\": executable file not found in $PATH\n;end 127",
		refusal("fork/exec /x: no such file or directory"):                           "true:fork/exec /x: no such file or directory\n;end 127",
		refusal("fork/exec /x: permission denied"):                                   "true:fork/exec /x: permission denied\n;end 126",
		refusal("fork/exec /x: exec format error"):                                   "true:fork/exec /x: exec format error\n;end 126",
		refusal("cwd '/no/such file or directory' does not exist"):                   "true:cwd '/no/such file or directory' does not exist\n;end 126",
		refusal("too many processes"):                                                "left",
		"\x02\x00\x00\x00\x01{":                                                      "left",
		message(0, endOf(3)) + refusal("permission denied"):                          "end 3",
		message(1, stdoutOf("a")):                                                    "left",
		"\x00\xff\xff\xff\xff" + "x":                                                 "left",
		"\x00\x00\x00\x00\x01\xff":                                                   "left",
		"":                                                                           "left",
		"\x00\x00":                                                                   "left",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(in))} {
			var h heard
			body := &tap{ReadCloser: io.NopCloser(r), to: &h, codec: proto.Unmarshal}
			out, err := io.ReadAll(body)
			body.Close()
			if got := h.text.String(); got != want || string(out) != in || err != nil || h.ended != 1 {
				t.Errorf("%q, %s: got %q %d times, want %q; passed %d bytes, %v", in, name, got, h.ended, want,
					len(out), err)
			}
		}
	}
}

func FuzzTap(f *testing.F) {
	f.Add([]byte(message(0, stdoutOf("a"))+message(0, endOf(3))), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var h heard
		body := &tap{ReadCloser: io.NopCloser(strings.NewReader(string(in))), to: &h, codec: proto.Unmarshal}
		buf := make([]byte, 1+uint(cut)%64)
		for {
			if _, err := body.Read(buf); err != nil {
				break
			}
		}
		body.Close()
		if h.ended != 1 {
			t.Errorf("got %d ends, want one", h.ended)
		}
	})
}

// TestStartWithoutBody: a request to start nothing is refused.
func TestStartWithoutBody(t *testing.T) {
	r, err := http.NewRequest(http.MethodPost, "http://guest"+processconnect.ProcessStartProcedure, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/connect+proto")
	resp, err := (&Door{begin: func(context.Context, ProcessRequest) Listener { return new(heard) }}).RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("got %v, %v", resp, err)
	}
}
