package mcp

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// maxOutput bounds the output of a call in its item, in bytes.
const maxOutput = 1 << 20

// A result is the outcome of a call: an output or an error.
type result struct {
	output *string
	err    *berth.MCPError
}

// failure returns the result of a call that failed in the protocol.
func failure(code int, message string) result {
	return result{err: &berth.MCPError{Type: berth.MCPProtocolError, Code: &code, Message: message}}
}

// resultOf returns the result of a call that the server answered, without the secrets that
// it may have returned.
func resultOf(got *sdk.CallToolResult, secrets *strings.Replacer) result {
	text := tool.Shorten(secrets.Replace(strings.ToValidUTF8(textOf(got), "\uFFFD")), maxOutput)
	if !got.IsError {
		return result{output: &text}
	}
	content, err := json.Marshal([]map[string]string{{"type": "text", "text": text}})
	if err != nil {
		return failure(codeClosed, "The server's error could not be read.")
	}
	return result{err: &berth.MCPError{Type: berth.MCPExecutionError, Content: content}}
}

// textOf returns the content of a result as text. Content that is not text is named with
// its type and size. Structured content is shown if there is no other.
func textOf(got *sdk.CallToolResult) string {
	var parts []string
	for _, c := range got.Content {
		parts = append(parts, contentText(c))
	}
	if len(parts) == 0 && got.StructuredContent != nil {
		if raw, err := json.Marshal(got.StructuredContent); err == nil {
			return string(raw)
		}
	}
	return strings.Join(parts, "\n")
}

func contentText(c sdk.Content) string {
	switch c := c.(type) {
	case *sdk.TextContent:
		return c.Text
	case *sdk.ImageContent:
		return fmt.Sprintf("[image: %s, %d bytes]", c.MIMEType, len(c.Data))
	case *sdk.AudioContent:
		return fmt.Sprintf("[audio: %s, %d bytes]", c.MIMEType, len(c.Data))
	case *sdk.ResourceLink:
		return fmt.Sprintf("[resource: %s %s]", c.URI, c.Name)
	case *sdk.EmbeddedResource:
		if r := c.Resource; r != nil && r.Text != "" {
			return r.Text
		} else if r != nil {
			return fmt.Sprintf("[resource: %s %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob))
		}
	}
	return "[content of an unknown type]"
}
