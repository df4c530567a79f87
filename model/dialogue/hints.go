package dialogue

// Texts for the model that replace fields missing on a vendor's wire. Each is sent
// only if the request sets the field.
const (
	Brief = "Answer briefly."
	Long  = "Answer at length and in detail."
	JSON  = "Answer with one JSON object and nothing else: no words around it, no code fence."

	// Vendors require that a dialogue starts and ends with the user, and that no
	// message is empty.
	AssistantFirst = "(The assistant speaks first.)"
	Continue       = "Go on."
	Empty          = "(no words)"

	// fromSystem introduces a system message within a dialogue that has only the roles
	// user and assistant.
	fromSystem = "[System message, not from the user]\n"
)

// Hint returns the instruction for a verbosity, or "".
func Hint(verbosity string) string {
	switch verbosity {
	case "low":
		return Brief
	case "high":
		return Long
	}
	return ""
}

// Speaker returns the participant's name as a prefix, or "".
func (t Turn) Speaker() string {
	if t.Name == "" {
		return ""
	}
	return t.Name + ": "
}

// Aside returns the text of a system turn for vendors that accept none within a
// dialogue.
func (t Turn) Aside() string { return fromSystem + t.Speaker() + Text(t.Content) }

// System removes the leading system turns. It returns their text, after the
// instructions, and the remaining turns.
func System(instructions string, turns []Turn) (text string, rest []Turn) {
	for len(turns) > 0 && (turns[0].Role == "system" || turns[0].Role == "developer") {
		instructions = Join(instructions, turns[0].Speaker()+Text(turns[0].Content))
		turns = turns[1:]
	}
	return instructions, turns
}

// Join puts a blank line between two texts, unless one is empty.
func Join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}
