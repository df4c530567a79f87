package messages

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
)

// The text editor of code execution. Its calls have the input that Anthropic's models send, and a result by the
// command.

// The names of the editor's blocks.
const (
	editorName   = "text_editor_code_execution"
	editorResult = editorName + "_tool_result"
)

type (
	editorView struct {
		Type       string `json:"type"` // "text_editor_code_execution_view_result"
		FileType   string `json:"file_type"`
		Content    string `json:"content"`
		StartLine  *int   `json:"start_line"` // null for images and directories
		NumLines   *int   `json:"num_lines"`
		TotalLines *int   `json:"total_lines"`
	}
	editorCreate struct {
		Type   string `json:"type"` // "text_editor_code_execution_create_result"
		Update bool   `json:"is_file_update"`
	}
	editorReplace struct {
		Type     string   `json:"type"` // "text_editor_code_execution_str_replace_result"
		OldStart int      `json:"old_start"`
		OldLines int      `json:"old_lines"`
		NewStart int      `json:"new_start"`
		NewLines int      `json:"new_lines"`
		Lines    []string `json:"lines"`
	}
	editorError struct {
		Type    string `json:"type"` // "text_editor_code_execution_tool_result_error"
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
	}
)

// readEditor reads a call of the text editor.
func (s *servedItem) readEditor(c *berth.TextEditorCall) {
	id := serverID(prefixServer, c.CallID)
	s.call(callOutput{Type: "server_tool_use", ID: id, Name: editorName, Input: c.Input, Caller: direct})
	s.result(resultOutput{Type: editorResult, ToolUseID: id, Content: newEditorResult(c.Result)})
}

func newEditorResult(r *berth.TextEditorResult) any {
	switch {
	case r == nil:
		return editorError{editorResult + "_error", "unavailable", noResult}
	case r.Error != "":
		return editorError{editorResult + "_error", r.Error, r.Message}
	case r.FileType != "":
		view := editorView{Type: editorName + "_view_result", FileType: r.FileType, Content: r.Content}
		if r.StartLine > 0 {
			view.StartLine, view.NumLines, view.TotalLines = &r.StartLine, &r.NumLines, &r.TotalLines
		}
		return view
	case r.NewStart > 0:
		return editorReplace{editorName + "_str_replace_result", r.OldStart, r.OldLines, r.NewStart, r.NewLines,
			append([]string{}, r.Lines...)}
	}
	return editorCreate{editorName + "_create_result", r.Updated}
}

// serveEditor adds a call of the text editor in an earlier answer.
func (h *history) serveEditor(c, result contentBlock) {
	var kind bare
	decodeInput(result.Content, &kind)
	r := &berth.TextEditorResult{}
	status := berth.StatusCompleted
	switch kind.Type {
	case editorName + "_view_result":
		var view editorView
		decodeInput(result.Content, &view)
		r.FileType, r.Content = cmp.Or(view.FileType, "text"), view.Content
		r.MediaType = imageType(view.FileType, view.Content)
		if view.StartLine != nil && view.NumLines != nil && view.TotalLines != nil {
			r.StartLine, r.NumLines, r.TotalLines = *view.StartLine, *view.NumLines, *view.TotalLines
		}
	case editorName + "_create_result":
		var create editorCreate
		decodeInput(result.Content, &create)
		r.Updated = create.Update
	case editorName + "_str_replace_result":
		var replace editorReplace
		decodeInput(result.Content, &replace)
		r.OldStart, r.OldLines, r.NewStart, r.NewLines = replace.OldStart, replace.OldLines, max(replace.NewStart, 1),
			replace.NewLines
		r.Lines = replace.Lines
	default:
		var failure editorError
		decodeInput(result.Content, &failure)
		status = berth.StatusFailed
		r.Error, r.Message = cmp.Or(failure.Code, "unavailable"), cmp.Or(failure.Message, noResult)
	}
	h.add(berth.TextEditorCall{ID: berth.NewID(berth.PrefixTextEditorCall), Type: berth.ItemTextEditorCall,
		Status: status, CallID: c.ID, Input: c.Input, Result: r})
}

// imageType returns the media type of an image that view has shown in base64, or "".
func imageType(fileType, content string) string {
	if fileType != "image" {
		return ""
	}
	raw, err := base64.StdEncoding.DecodeString(content[:min(len(content), sniffed)])
	if media := http.DetectContentType(raw); err == nil && strings.HasPrefix(media, "image/") {
		return media
	}
	return ""
}

// sniffed is the number of characters of base64 that show the type of an image.
const sniffed = 512
