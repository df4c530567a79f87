// Package jupyter is a client of Jupyter kernels: it finds them, and speaks their protocol
// (version 5) over ZeroMQ.
//
// A kernel runs the code of a model and is hostile. What it sends is bounded in size, and
// never makes the client wait without a limit of the caller's.
package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// delimiter separates the routing frames of a message from its content.
const delimiter = "<IDS|MSG>"

type header struct {
	MsgID    string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	MsgType  string `json:"msg_type"`
	Version  string `json:"version"`
}

// A Message is what a kernel sends.
type Message struct {
	Type    string          // msg_type
	Parent  string          // the msg_id of the request that it answers
	Content json.RawMessage // nil if it was above the size limit
	Start   []byte          // of such a content
}

// randomID returns an identifier, or a key.
func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// encode returns the frames of a request.
func encode(key, session, id, kind string, content any) ([][]byte, error) {
	head, err := json.Marshal(header{MsgID: id, Session: session, Username: "berth",
		Date: time.Now().UTC().Format(time.RFC3339Nano), MsgType: kind, Version: "5.3"})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	parts := [][]byte{head, []byte("{}"), []byte("{}"), body}
	return append([][]byte{[]byte(delimiter), sign(key, parts)}, parts...), nil
}

func sign(key string, parts [][]byte) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	for _, p := range parts {
		mac.Write(p)
	}
	return []byte(hex.EncodeToString(mac.Sum(nil)))
}

var errMalformed = errors.New("malformed message")

// decode reads the frames of a message: routing, delimiter, signature, header, parent,
// metadata, content, and buffers, which are ignored. The signature of a message whose
// content was cut cannot be checked. start is that of such a content.
func decode(key string, frames [][]byte, start []byte) (Message, error) {
	for len(frames) > 0 && string(frames[0]) != delimiter {
		frames = frames[1:]
	}
	if len(frames) < 6 {
		return Message{}, errMalformed
	}
	signature, parts := frames[1], frames[2:6]
	if parts[3] != nil && !hmac.Equal(signature, sign(key, parts)) {
		return Message{}, errors.New("a message has a wrong signature")
	}
	var head, parent header
	if json.Unmarshal(parts[0], &head) != nil || json.Unmarshal(parts[1], &parent) != nil {
		return Message{}, errMalformed
	}
	m := Message{Type: head.MsgType, Parent: parent.MsgID}
	if parts[3] != nil {
		if !json.Valid(parts[3]) {
			return Message{}, errMalformed
		}
		m.Content = bytes.Clone(parts[3])
	} else {
		m.Start = start
	}
	return m, nil
}
